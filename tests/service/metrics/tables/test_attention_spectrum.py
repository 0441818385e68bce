"""From measured spectra to their means, intervals and plots."""

from __future__ import annotations

import random
import statistics
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.service.metrics.table import Context, Summary
from assay.service.metrics.tables.attention_spectrum import AttentionSpectrum

SVG = "{http://www.w3.org/2000/svg}"


def spectra(n: int, layers: int) -> dict[str, list[Any]]:
    source = random.Random(0)
    largest = [[source.uniform(0.5, 0.6) - 0.1 * layer for layer in range(layers)] for _ in range(n)]
    return {
        "id": [f"{row:03d}" for row in range(n)],
        "curve": [[share for one in row for share in (0.0, one, 1.0)] for row in largest],
        "largest": largest,
        "rank_90": [[10.0 * one for one in row] for row in largest],
        "effective_rank": [[3.0] * layers for _ in range(n)],
        "tokens": [[20] * layers for _ in range(n)],
    }


def of_spectra(rows: dict[str, list[Any]], layers: list[int]) -> Summary:
    return AttentionSpectrum().summarise(rows, Context(evidence=[{"layers": layers}]))


def test_a_spectrum_s_metrics_are_means_over_examples_and_layers() -> None:
    rows = spectra(30, 4)
    found = of_spectra(rows, [0, 2, 5, 11])
    each = [part.metrics["explained_by_largest"].value for part in found.breakdown]
    assert each == pytest.approx(
        [statistics.fmean(row[place] for row in rows["largest"]) for place in range(4)]
    )
    overall = found.metrics["explained_by_largest"]
    assert overall.value == pytest.approx(statistics.fmean(each))  # type: ignore[type-var]
    assert overall.ci_low < overall.value < overall.ci_high  # type: ignore[operator]
    assert found.metrics["rank_90_share"].value == pytest.approx(overall.value / 2)  # type: ignore[operator]
    assert [part.label for part in found.breakdown] == ["layer 0", "layer 2", "layer 5", "layer 11"]
    drawn = ElementTree.fromstring(found.plot or "")
    assert len(list(drawn.iter(f"{SVG}polyline"))) == 3  # the first, the middle and the last layer
    labels = [text.text for text in drawn.iter(f"{SVG}text")]
    assert {"layer 0", "layer 5", "layer 11"} <= {*labels}


def test_an_example_without_a_spectrum_takes_the_layer_s_value() -> None:
    rows = spectra(5, 2)
    for name in ("largest", "rank_90", "effective_rank"):
        rows[name][3][1] = None
    rows["curve"][3][4] = None
    found = of_spectra(rows, [0, 1])
    assert found.metrics["rank_90"].value is None
    assert [part.metrics["rank_90"].value is None for part in found.breakdown] == [False, True]
    (warning,) = found.warnings
    assert warning.code == "undefined_metric"
    assert len(list(ElementTree.fromstring(found.plot or "").iter(f"{SVG}polyline"))) == 1
