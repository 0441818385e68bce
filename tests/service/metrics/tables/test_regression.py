"""Errors of a regression by hand, their paired difference, and what has no value."""

from __future__ import annotations

import math

import pytest

from assay.service.metrics.paired import Pair
from assay.service.metrics.table import Context
from assay.service.metrics.tables.regression import UNDEFINED, Regression

TABLE = Regression()
N = 40


def rows(shift: float = 0.0, **more: object) -> dict[str, list[object]]:
    errors = [number % 5 - 1.5 + shift for number in range(N)]
    return {
        "id": [f"s{number:04d}" for number in range(N)],
        "target": [float(number) for number in range(N)],
        "prediction": [number + error for number, error in enumerate(errors)],
        "squared_error": [error**2 for error in errors],
        "forward": [1] * N,
        "backward": [0] * N,
    } | more  # type: ignore[return-value]


def errors_of(shift: float) -> tuple[float, float]:
    errors = [number % 5 - 1.5 + shift for number in range(N)]
    return math.sqrt(sum(error**2 for error in errors) / N), sum(map(abs, errors)) / N


def test_errors_with_intervals() -> None:
    metrics = TABLE.summarise(rows(), Context()).metrics
    assert list(metrics) == ["rmse", "mae"]
    for name, expected in zip(metrics, errors_of(0.0), strict=True):
        metric = metrics[name]
        assert metric.value == pytest.approx(expected, abs=1e-12)
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert 0 < metric.ci_low < expected < metric.ci_high < 2 * expected
        assert (metric.n, metric.higher_is_better, metric.ci_method) == (N, False, "studentised")
    clean = TABLE.summarise(rows(clean_squared_error=[4.0] * N), Context()).metrics
    assert set(clean) == set(TABLE.units)
    assert (clean["clean_rmse"].value, clean["clean_rmse"].ci_low) == (2.0, None)  # all the same


def test_a_prediction_that_is_not_finite_leaves_no_error() -> None:
    broken = rows()
    broken["prediction"][3] = broken["squared_error"][3] = None
    metrics = TABLE.summarise(broken, Context()).metrics
    assert metrics["rmse"].value is metrics["mae"].value is None
    assert (metrics["rmse"].ci_low, metrics["rmse"].n) == (None, N)
    assert TABLE.undefined["rmse"] == UNDEFINED
    paired = TABLE.paired(Pair("rmse", broken, rows()))
    assert paired.difference("rmse", (None, errors_of(0.0)[0])) is None


def test_models_are_compared_example_by_example() -> None:
    paired = TABLE.paired(Pair("rmse", rows(), rows(2.0)))
    for place, name in enumerate(("rmse", "mae")):
        reported = (errors_of(0.0)[place], errors_of(2.0)[place])
        found = paired.difference(name, reported)
        assert found is not None
        assert found.value == pytest.approx(reported[1] - reported[0], abs=1e-12)
        assert 0 < found.low < found.value < found.high
        assert found.test.n == N
        assert found.test.p_value < 0.01
        assert paired.difference(name, (reported[0], reported[0])) is None  # not what the rows say
    assert paired.difference("clean_rmse", (1.0, 1.0)) is None
    assert paired.difference("top1", (1.0, 1.0)) is None
    same = TABLE.paired(Pair("rmse", rows(), rows())).difference("rmse", (errors_of(0.0)[0],) * 2)
    assert same is not None
    assert (same.value, same.low, same.high) == (0.0, None, None)
    assert same.test.p_value == 1.0
