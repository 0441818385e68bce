"""The merge of the eigenvector check."""

from __future__ import annotations

import random
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.service.metrics.table import Context, Summary
from assay.service.metrics.tables import eigenvector_check

SVG = "{http://www.w3.org/2000/svg}"
PER_LAYER = (*eigenvector_check.METRICS.values(),)
OF_CONTROLS = ("difference_mean", "difference_std", "cosine", "offset")


def checked(n: int, layers: int = 2) -> dict[str, list[Any]]:
    """Columns of the eigenvector check, with 0.9 for the model's cosines and 0.5 for the controls'."""
    source = random.Random(0)

    def around(value: float) -> float:
        return value + source.uniform(-0.05, 0.05)

    table: dict[str, list[Any]] = {"id": [f"{row:02d}" for row in range(n)]}
    for name in PER_LAYER:
        table[name] = [[around(0.9) for _ in range(layers)] for _ in range(n)]
    for control in eigenvector_check.CONTROLS:
        for name in OF_CONTROLS:
            table[f"{control}_{name}"] = [around(0.5) for _ in range(n)]
    for prefix, place in (("", 18), ("random_", 10), ("permuted_", 10)):
        table[f"{prefix}cosines"] = [[8 * (b == place) for b in range(20)] for _ in range(n)]
        table[f"{prefix}spreads"] = [[8 * (b == place) for b in range(48)] for _ in range(n)]
    table |= {name: [0] * n for name in ("skipped", "undefined")} | {"elements": [100] * n}
    return table


def merged(table: dict[str, list[Any]]) -> Summary:
    return eigenvector_check.EigenvectorCheck().summarise(table, Context(evidence=[{"layers": [1, 4]}]))


def test_the_check_has_the_model_s_layers_and_the_controls() -> None:
    table = checked(30)
    found = merged(table)
    assert [part.label for part in found.breakdown] == ["random", "permuted", "layer 1", "layer 4"]
    cosine = found.metrics["eigenvector_cosine"]
    layers = [part.metrics["eigenvector_cosine"].value for part in found.breakdown[2:]]
    assert cosine.value == pytest.approx(sum(layers) / 2, rel=1e-12)  # type: ignore[arg-type]
    assert cosine.higher_is_better
    assert not found.metrics["gamma_difference_mean"].higher_is_better
    assert found.breakdown[0].metrics["eigenvector_cosine"].value == pytest.approx(0.5, abs=0.05)
    assert set(found.breakdown[1].metrics) == set(eigenvector_check.OF_CONTROLS)
    assert set(found.metrics) == set(found.breakdown[2].metrics) == set(eigenvector_check.METRICS)
    assert found.warnings == []


def test_what_was_left_out_is_told() -> None:
    table = checked(3)
    table["skipped"], table["undefined"] = [2, 0, 5], [0, 0, 1]
    table["cosine"][1][0] = None
    codes = {warning.code: warning for warning in merged(table).warnings}
    assert codes["quotients_left_out"].evidence == {"skipped": 7, "elements": 300, "undefined": 1}
    assert codes["undefined_metric"].evidence == {"metrics": ["eigenvector_cosine"]}
    assert merged(table).metrics["eigenvector_cosine"].value is None


def test_the_plot_has_a_distribution_of_each_source() -> None:
    lines = list(ElementTree.fromstring(merged(checked(4)).plot or "").iter(f"{SVG}polyline"))
    assert len(lines) == 6
    heights = [min(float(point.split(",")[1]) for point in line.attrib["points"].split()) for line in lines]
    assert len(set(heights)) == 1  # all of each source is in one bin
    model, control = lines[0].attrib["points"], lines[1].attrib["points"]
    assert model != control
    assert control == lines[2].attrib["points"]
