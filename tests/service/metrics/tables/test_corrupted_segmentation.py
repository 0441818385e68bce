"""Segmentation metrics under corruptions against counts by hand, torch-free."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from assay.service.contract.results import Breakdown, Metric
from assay.service.metrics.statistics.corrupted_pixel_counts import write
from assay.service.metrics.tables.corrupted_segmentation import corrupted_segmentation_metrics
from assay.service.metrics.tables.segmentation import segmentation_metrics
from tests.support.cell_counts import image

NAMES = {"miou", "mean_accuracy", "pixel_accuracy"}
CELLS = [("fog", 1), ("fog", 5), ("snow", 1)]


def columns(n: int) -> dict[str, list[Any]]:
    images = [image(seed) for seed in range(n)]
    return {
        "target": [target for target, _ in images],
        "corrupted_pixels": [write(cells) for _, cells in images],
    }


def value(metric: Metric) -> float:
    assert metric.value is not None
    return metric.value


def by_label(breakdown: list[Breakdown]) -> dict[str, dict[str, Metric]]:
    return {part.label: part.metrics for part in breakdown}


def test_values_by_hand() -> None:
    # Under fog class 0 has 1 of 3 pixels and class 1 all of 1, both in the second of two images.
    given = {"target": [[2, 0], [1, 1]], "corrupted_pixels": ["1=0/2;0=2/2", "0=1/1 1=1/1;0=1/1 1=1/1"]}
    metrics, breakdown = corrupted_segmentation_metrics(given, [("fog", 2), ("snow", 2)])
    parts = by_label(breakdown)
    assert list(parts) == ["mean/2", "fog", "snow", "fog/2", "snow/2"]
    fog, snow = parts["fog/2"], parts["snow/2"]
    assert fog["pixel_accuracy"].value == 2 / 4
    assert fog["mean_accuracy"].value == pytest.approx((1 / 3 + 1) / 2, abs=1e-15)
    # Sums first: the mean of the images' own would be (0 + 1) / 2.
    assert fog["miou"].value == pytest.approx((1 / 3 + 1 / 3) / 2, abs=1e-15)
    assert {name: metric.value for name, metric in snow.items()} == dict.fromkeys(NAMES, 1.0)
    assert metrics.keys() == {f"corrupted_{name}" for name in NAMES}
    assert metrics["corrupted_miou"].value == pytest.approx((1 / 3 + 1) / 2, abs=1e-15)
    assert {metric.n for part in (metrics, *parts.values()) for metric in part.values()} == {2}


def test_the_interval_of_pixel_accuracy_is_that_of_its_standard_error() -> None:
    n = 400
    given = {"target": [[4, 0]] * n, "corrupted_pixels": ["0=4/4", "0=2/2 1=0/2"] * (n // 2)}
    metrics, _ = corrupted_segmentation_metrics(given, [("fog", 2)])
    metric = metrics["corrupted_pixel_accuracy"]
    half = 1.96 * 0.25 / n**0.5
    assert metric.value == 0.75
    assert metric.ci_low == pytest.approx(0.75 - half, abs=0.1 * half)
    assert metric.ci_high == pytest.approx(0.75 + half, abs=0.1 * half)


def test_means_are_over_the_cells_of_a_severity_and_of_a_corruption() -> None:
    metrics, breakdown = corrupted_segmentation_metrics(columns(12), CELLS)
    parts = by_label(breakdown)
    for name in NAMES:
        fog1, fog5, snow1 = (value(parts[cell][name]) for cell in ("fog/1", "fog/5", "snow/1"))
        assert value(parts["fog"][name]) == pytest.approx(fmean([fog1, fog5]), abs=1e-15)
        assert value(parts["mean/1"][name]) == pytest.approx(fmean([fog1, snow1]), abs=1e-15)
        assert parts["mean/5"][name] == parts["fog/5"][name]
        whole = value(metrics[f"corrupted_{name}"])
        assert whole == pytest.approx(fmean([fog1, fog5, snow1]), abs=1e-15)


def test_intervals_are_over_images_whose_cells_stay_together() -> None:
    # Every cell the same: the mean over cells is as uncertain as one cell, not less.
    images = [image(seed) for seed in range(40)]
    targets = [target for target, _ in images]
    texts = [write([cells[0]] * len(CELLS)) for _, cells in images]
    metrics, breakdown = corrupted_segmentation_metrics({"target": targets, "corrupted_pixels": texts}, CELLS)
    one = by_label(breakdown)["fog/1"]
    known = [{c: (found, given) for c, found, given in cells[0]} for _, cells in images]
    dense = {
        "target": targets,
        "intersection": [[row.get(c, (0, 0))[0] for c in range(4)] for row in known],
        "predicted": [[row.get(c, (0, 0))[1] for c in range(4)] for row in known],
    }
    for name, expected in segmentation_metrics(dense).items():
        found = metrics[f"corrupted_{name}"]
        assert found.value == one[name].value == expected.value
        assert expected.ci_low is not None
        assert expected.ci_high is not None
        width = expected.ci_high - expected.ci_low
        assert found.ci_low == pytest.approx(expected.ci_low, abs=0.1 * width)
        assert found.ci_high == pytest.approx(expected.ci_high, abs=0.1 * width)


def test_the_same_columns_give_the_same_bits() -> None:
    assert corrupted_segmentation_metrics(columns(9), CELLS) == corrupted_segmentation_metrics(
        columns(9), CELLS
    )


def test_without_a_judged_pixel_nothing_is_defined() -> None:
    metrics, breakdown = corrupted_segmentation_metrics(
        {"target": [[0, 0]], "corrupted_pixels": [";"]}, [("fog", 1), ("fog", 2)]
    )
    for part in (metrics, *(one.metrics for one in breakdown)):
        for metric in part.values():
            assert (metric.value, metric.ci_low, metric.ci_high, metric.n) == (None, None, None, 1)


def test_other_cells_than_were_to_be_measured_are_refused() -> None:
    with pytest.raises(ValueError, match="an image has 3 outcomes, 2 were to be measured"):
        corrupted_segmentation_metrics(columns(3), CELLS[:2])
