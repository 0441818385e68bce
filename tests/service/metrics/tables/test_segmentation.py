"""Segmentation metrics against counts by hand, torch-free; intervals repeat and behave."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from assay.service.metrics.tables.segmentation import segmentation_metrics

# Two images, three classes; the third occurs in annotations and predictions nowhere.
BY_HAND = {
    "intersection": [[3, 1, 0], [2, 0, 0]],
    "target": [[4, 2, 0], [2, 2, 0]],
    "predicted": [[4, 2, 0], [4, 0, 0]],
}


def columns(n: int, seed: int = 0) -> dict[str, list[Any]]:
    """Counts of n random images of 100 pixels and 4 classes; the prediction is right for two in three."""
    draws = np.random.default_rng(seed)
    truth = draws.integers(0, 4, (n, 100))
    wrong = draws.random((n, 100)) < 1 / 3
    predicted = np.where(wrong, (truth + 1) % 4, truth)

    def per_class(labels: Any, where: Any) -> list[list[int]]:
        return [[int(((row == k) & w).sum()) for k in range(4)] for row, w in zip(labels, where, strict=True)]

    everywhere = np.ones_like(wrong)
    return {
        "intersection": per_class(truth, ~wrong),
        "target": per_class(truth, everywhere),
        "predicted": per_class(predicted, everywhere),
    }


def test_values_by_hand() -> None:
    metrics = segmentation_metrics(BY_HAND)
    # Class 0: 5 of 6 pixels, union 6 + 8 - 5 = 9; class 1: 1 of 4, union 4 + 2 - 1 = 5.
    assert metrics["pixel_accuracy"].value == 6 / 10
    assert metrics["mean_accuracy"].value == pytest.approx((5 / 6 + 1 / 4) / 2, abs=1e-15)
    assert metrics["miou"].value == pytest.approx((5 / 9 + 1 / 5) / 2, abs=1e-15)
    assert {metric.n for metric in metrics.values()} == {2}
    assert {metric.ci_method for metric in metrics.values()} == {"too_few"}  # of two images


def test_a_class_that_is_only_predicted_counts_for_the_union_alone() -> None:
    metrics = segmentation_metrics({"intersection": [[4, 0]], "target": [[5, 0]], "predicted": [[4, 1]]})
    assert metrics["miou"].value == pytest.approx((4 / 5 + 0) / 2)
    assert metrics["mean_accuracy"].value == pytest.approx(4 / 5)


def test_intervals_hold_the_value_and_shrink_with_more_images() -> None:
    few, many = segmentation_metrics(columns(20)), segmentation_metrics(columns(500))
    for name in ("miou", "mean_accuracy", "pixel_accuracy"):
        widths = []
        for metric in (few[name], many[name]):
            assert metric.ci_low is not None
            assert metric.value is not None
            assert metric.ci_high is not None
            assert metric.ci_low < metric.value < metric.ci_high
            widths.append(metric.ci_high - metric.ci_low)
        assert widths[1] < widths[0] / 2


def test_the_interval_of_pixel_accuracy_is_that_of_its_standard_error() -> None:
    given = columns(400)
    shares = np.array(given["intersection"]).sum(1) / 100
    metric = segmentation_metrics(given)["pixel_accuracy"]
    half = 1.96 * shares.std() / 400**0.5
    assert metric.ci_low == pytest.approx(shares.mean() - half, abs=0.1 * half)
    assert metric.ci_high == pytest.approx(shares.mean() + half, abs=0.1 * half)


def test_the_same_columns_give_the_same_bits() -> None:
    random.seed(1)
    first = segmentation_metrics(columns(50))
    random.seed(2)
    assert segmentation_metrics(columns(50)) == first


def test_without_a_judged_pixel_nothing_is_defined() -> None:
    nothing = {name: [[0, 0]] for name in ("intersection", "target", "predicted")}
    for metric in segmentation_metrics(nothing).values():
        assert (metric.value, metric.ci_low, metric.ci_high, metric.n) == (None, None, None, 1)


def test_wrong_columns_are_named() -> None:
    with pytest.raises(ValueError, match=r"missing or empty: \['predicted'\]"):
        segmentation_metrics({name: BY_HAND[name] for name in ("intersection", "target")})
    with pytest.raises(ValueError, match=r"one shape \(n, K\)"):
        segmentation_metrics({**BY_HAND, "target": [[1, 2, 3]]})
