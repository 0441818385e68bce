"""From the measured parts of J_proj to its mean, its logarithm and their intervals."""

from __future__ import annotations

import math
import random
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.service.contract.results import Metric
from assay.service.metrics.table import Context, Summary
from assay.service.metrics.tables.projection_loss import ProjectionLoss

LAYERS = [0, 3]


def columns(losses: list[list[float]], *, shift: float = 0.0) -> dict[str, list[Any]]:
    """Parts of which example i has the loss losses[i][l] e^shift in layer l: phi = 1 + loss, and h = 1."""
    return {
        "id": [f"{row:03d}" for row in range(len(losses))],
        "log_phi": [[math.log(1 + loss) + shift for loss in row] for row in losses],
        "output": [[math.exp(shift) if shift < 700 else 0.0 for _ in row] for row in losses],
        "negative": [[3 if loss < 0 else 1 for loss in row] for row in losses],
        "terms": [[4 for _ in row] for row in losses],
    }


def merged(table: dict[str, list[Any]], form: str, layers: list[int] = LAYERS) -> Summary:
    return ProjectionLoss().summarise(table, Context(params={"form": form}, evidence=[{"layers": layers}]))


def drawn(n: int, *, seed: int = 0) -> list[list[float]]:
    source = random.Random(seed)
    return [[source.uniform(0.1, 2.0), source.uniform(5.0, 9.0)] for _ in range(n)]


def of_layers(summary: Summary, name: str) -> list[Metric]:
    return [part.metrics[name] for part in summary.breakdown]


def test_the_paper_s_form_is_a_mean_over_examples_and_layers() -> None:
    losses = drawn(40)
    found = merged(columns(losses), "paper")
    means = [math.fsum(row[layer] for row in losses) / 40 for layer in (0, 1)]
    assert [metric.value for metric in of_layers(found, "projection_loss")] == pytest.approx(means, rel=1e-12)
    overall = found.metrics["projection_loss"]
    assert overall.value == pytest.approx(sum(means) / 2, rel=1e-12)
    assert overall.n == 40
    assert overall.ci_low < overall.value < overall.ci_high  # type: ignore[operator]
    assert [part.label for part in found.breakdown] == ["layer 0", "layer 3"]
    assert found.warnings == []


def test_the_released_form_averages_the_logarithms_of_the_layers_means() -> None:
    losses = drawn(40)
    found = merged(columns(losses), "released")
    logs = [math.log(math.fsum(row[layer] for row in losses) / 40) for layer in (0, 1)]
    each = of_layers(found, "log_projection_loss")
    assert [metric.value for metric in each] == pytest.approx(logs, rel=1e-12)
    overall = found.metrics["log_projection_loss"]
    assert overall.value == pytest.approx(sum(logs) / 2, rel=1e-12)
    for metric in (*each, overall):
        assert metric.ci_low < metric.value < metric.ci_high  # type: ignore[operator]
    # The linearised interval is about as wide as the layers' intervals say.
    width = math.hypot(*(m.ci_high - m.ci_low for m in each)) / 2  # type: ignore[operator]
    assert overall.ci_high - overall.ci_low == pytest.approx(width, rel=0.3)  # type: ignore[operator]


def test_the_share_of_negative_terms_has_an_interval_over_examples() -> None:
    found = merged(columns([[1.0, -0.5], [-0.5, -0.5]]), "paper").metrics["negative_terms"]
    assert (found.value, found.n) == (0.625, 2)


def test_a_logarithm_of_what_is_negative_is_null_with_the_reason() -> None:
    found = merged(columns([[1.0, -0.5], [2.0, -0.25], [0.5, 0.1]]), "released")
    assert [metric.value is None for metric in of_layers(found, "log_projection_loss")] == [False, True]
    assert found.metrics["log_projection_loss"].value is None
    assert found.metrics["negative_terms"].value is not None
    (warning,) = found.warnings
    assert warning.code == "undefined_metric"
    assert "layers 3" in warning.message
    assert "released code logs NaN" in warning.message


def test_what_no_float_holds_has_a_logarithm_and_no_value() -> None:
    losses = drawn(10)
    plain, huge = (columns(losses, shift=shift) for shift in (0.0, 5000.0))
    for table in (plain, huge):
        table["output"] = [[0.0, 0.0] for _ in losses]
    low, high = (merged(table, "released") for table in (plain, huge))
    for name in ("value", "ci_low", "ci_high"):
        one, other = (getattr(found.metrics["log_projection_loss"], name) for found in (low, high))
        assert other == pytest.approx(one + 5000, abs=1e-9)
    found = merged(huge, "paper")
    assert found.metrics["projection_loss"].value is None
    assert "too large for a float" in found.warnings[0].message
    assert ElementTree.fromstring(found.plot or "") is not None


def test_very_small_losses_keep_their_value() -> None:
    table = columns(drawn(5), shift=-900.0)
    table["output"] = [[0.0, 0.0] for _ in range(5)]
    assert merged(table, "paper").metrics["projection_loss"].value == 0.0
    assert merged(table, "released").metrics["log_projection_loss"].value == pytest.approx(-900, abs=5)


def test_one_example_that_is_not_finite_takes_the_layer_s_value() -> None:
    table = columns(drawn(5))
    table["log_phi"][2][1] = None
    found = merged(table, "paper")
    assert [metric.value is None for metric in of_layers(found, "projection_loss")] == [False, True]
    assert found.metrics["projection_loss"].value is None
    assert "not finite" in found.warnings[0].message


def test_the_plot_has_a_point_for_each_layer() -> None:
    plot = merged(columns(drawn(5)), "released").plot
    circles = list(ElementTree.fromstring(plot).iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 4
    assert float(circles[1].attrib["cy"]) < float(circles[0].attrib["cy"])  # the larger loss is higher up
