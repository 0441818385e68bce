"""The merges of the eigenvector check and of efficiency."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.service.metrics.analyses import eigenvector_check
from assay.service.metrics.analyses.analysis_estimates import mean
from assay.service.metrics.analyses.efficiency import Efficiency
from assay.service.metrics.table import Context, Summary

SVG = "{http://www.w3.org/2000/svg}"
PER_LAYER = (*eigenvector_check.METRICS.values(),)
OF_CONTROLS = ("difference_mean", "difference_std", "cosine", "offset")
DEVICE = {"type": "cpu", "name": "a processor", "threads": 1}


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


FOUND = {
    "batch_size": 4, "parameters": 100, "model_bytes": 1000,
    "test_flops": 50.0, "train_flops": 150.0, "test_bytes": 400, "train_bytes": 1200,
}  # fmt: skip
SECONDS = {"test_seconds": [0.2, 0.1, 0.9], "train_seconds": [0.5, 0.4, 0.6]}


def test_efficiency_is_a_table_of_one_machine() -> None:
    found = Efficiency().summarise(SECONDS, Context(evidence=[FOUND], device=DEVICE))
    values = {name: metric.value for name, metric in found.metrics.items()}
    assert values == {
        "parameters": 100, "multiply_adds": 25, "flops": 50, "train_multiply_adds": 75,
        "test_seconds": 0.2, "train_seconds": 0.5,
        "test_memory_per_image": 100, "train_memory_per_image": 300,
        "test_memory": 1400, "train_memory": 2200,
    }  # fmt: skip
    assert found.metrics["parameters"].ci_method == "exact"
    assert found.metrics["test_seconds"].n == 3
    (warning,) = found.warnings
    assert warning.code == "measures_the_machine"
    assert warning.evidence["device"] == DEVICE
    assert "a processor at 4 examples a pass" in warning.message
    bars = [
        bar
        for bar in ElementTree.fromstring(found.plot or "").iter(f"{SVG}rect")
        if bar.attrib["width"] == "60"
    ]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights[1] / heights[0] == pytest.approx(2.5, abs=0.01)
    assert heights[3] / heights[2] == pytest.approx(3, abs=0.01)


def test_groups_of_many_examples_give_the_interval_of_single_ones() -> None:
    source = random.Random(1)
    values = [source.expovariate(1.0) for _ in range(20_000)]
    found = mean(values, "x")
    assert found.n == 20_000
    assert found.value == math.fsum(values) / 20_000
    width = 2 * 1.96 * statistics.pstdev(values) / math.sqrt(20_000)
    assert found.ci_high - found.ci_low == pytest.approx(width, rel=0.25)  # type: ignore[operator]
    assert found.ci_low < found.value < found.ci_high  # type: ignore[operator]
    assert mean(sorted(values), "x") == found  # in any order


def test_a_mean_needs_every_example() -> None:
    assert mean([1.0, None], "x").value is None
    assert mean([1.0, float("inf")], "x").value is None
    assert mean([1.0, 3.0], "x").value == 2.0
