"""Distances, median, area and steps of the curve of an attack that looks for the smallest perturbation."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from assay.service.contract.results import CurveBreakdown, EvaluationResult
from assay.service.metrics.paired import Pair
from assay.service.metrics.statistics.security_curve import (
    MAX_POINTS,
    curve_metrics,
    curve_points,
    distances,
    end_of_area,
)
from assay.service.metrics.table import Context
from assay.service.metrics.tables.classification import Attack

INF = math.inf


def rows(sizes: list[float | None], norm: str = "l2") -> dict[str, list[Any]]:
    """Of each example its distance: None for one that holds out, 0 for one that was wrong before."""
    n = len(sizes)
    return {
        "id": [f"{place:04d}" for place in range(n)], "label": [0] * n, "prediction": [0] * n,
        "correct": [one is None for one in sizes], "correct5": [True] * n,
        "clean_correct": [one != 0 for one in sizes], "loss": [0.0] * n, "forward": [2] * n,
        "backward": [1] * n, norm: [one or 0.0 for one in sizes],
    }  # fmt: skip


def test_distances_are_told_by_the_verdicts() -> None:
    """What was never broken has an infinite distance, not the 0 of its own image."""
    assert distances(rows([0, 0.5, None]), "L2") == [0.0, 0.5, INF]
    assert distances(rows([0.5], "l0"), "L0") == [0.5]
    assert distances(rows([0.5]), "L1") is None
    assert distances(rows([0.5]) | {"l2": [None]}, "L2") is None


def test_what_was_wrong_before_has_distance_zero_though_the_attack_made_it_right() -> None:
    """As the protocol `paper` may: the curve at 0 is then still the accuracy without an attack."""
    columns = rows([0.5, None, None]) | {"clean_correct": [True, True, False]}
    assert distances(columns, "L2") == [0.5, INF, 0.0]


def test_median_and_area_by_hand() -> None:
    found = curve_metrics([0.0, 1.0, 2.0, 4.0, INF], 4.0)
    assert found["median_distance"].value == 2.0
    assert found["curve_area"].value == pytest.approx((0 + 1 + 2 + 4 + 4) / 5)
    assert found["curve_area"].ci_low is not None


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_a_median_of_mostly_unbroken_examples_has_no_value(count: int) -> None:
    metric = curve_metrics([1.0] * count + [INF] * (count + 1), 1.0)["median_distance"]
    assert metric.value is None
    assert metric.ci_method == "none"
    assert metric.n == 2 * count + 1


def test_an_interval_that_would_end_at_infinity_is_left_out() -> None:
    few = curve_metrics([0.1 * place for place in range(1, 24)] + [INF] * 20, None)["median_distance"]
    assert few.value is not None
    assert few.ci_high is None
    many = curve_metrics([0.1 * place for place in range(1, 60)] + [INF] * 2, None)["median_distance"]
    assert many.ci_low is not None
    assert many.ci_high is not None
    assert many.ci_low < many.value < many.ci_high < 6  # type: ignore[operator]


def test_the_area_ends_where_asked_or_at_the_largest_distance() -> None:
    assert end_of_area([0.0, 1.0, INF], None) == 1.0
    assert end_of_area([0.0, 1.0, INF], 0.5) == 0.5
    assert end_of_area([0.0, INF], None) is None


@pytest.mark.parametrize("n", [1, 3, 40, 1000])
def test_the_curve_is_the_step_function(n: int) -> None:
    draw = random.Random(n)
    found = [draw.choice([0.0, INF, draw.random()]) for _ in range(n)]
    points = curve_points(found, "L2")
    assert len(points) <= MAX_POINTS
    assert points[0].epsilon == 0
    for point in points:
        metric = point.metrics["curve_top1"]
        assert metric.value == sum(one > point.epsilon for one in found) / n
        assert metric.ci_low is not None
        assert metric.ci_low <= metric.value <= (metric.ci_high or 0)
    finite = [one for one in found if one < INF]
    assert points[-1].epsilon == max(finite, default=0.0)
    if len(set(finite) | {0.0}) <= MAX_POINTS:
        assert [point.epsilon for point in points] == sorted({0.0, *finite})


def result(params: dict[str, Any], metrics: Any) -> EvaluationResult:
    return EvaluationResult(
        name="fmn", params=params, data={"name": "digits", "params": {}}, protocol="pixel", backend="native",
        metrics=metrics, seconds=0.0, forward_passes=0, backward_passes=0,
    )  # fmt: skip


def test_a_row_without_an_epsilon_begins_with_the_distance() -> None:
    columns = rows([0, 0.5, 0.7, None])
    found = Attack().summarise(columns, Context(params={"norm": "L2", "area_to": 1.0}))
    assert list(found.metrics)[:3] == ["median_distance", "curve_area", "top1"]
    assert found.metrics["curve_area"].value == pytest.approx((0.5 + 0.7 + 1) / 4)
    assert all(isinstance(part, CurveBreakdown) for part in found.breakdown)
    bounded = Attack().summarise(columns, Context(params={"norm": "L2", "epsilon": 1.0}))
    assert next(iter(bounded.metrics)) == "top1"
    assert "curve_area" not in bounded.metrics


def test_areas_are_compared_up_to_one_end() -> None:
    near, far = (rows([factor * place / 50 for place in range(1, 51)]) for factor in (0.5, 1.0))
    params = {"norm": "L2", "area_to": 1.0}
    found = [Attack().summarise(columns, Context(params=params)).metrics for columns in (near, far)]
    values = [(metrics["curve_area"].value, metrics["median_distance"].value) for metrics in found]
    pair = Pair("fmn", near, far, (result(params, found[0]), result(params, found[1])))
    area = Attack().paired(pair).difference("curve_area", (values[0][0], values[1][0]))  # type: ignore[arg-type]
    assert area is not None
    assert area.value == pytest.approx(values[1][0] - values[0][0])  # type: ignore[operator]
    assert area.test.p_value < 1e-6
    median = Attack().paired(pair).difference("median_distance", (values[0][1], values[1][1]))  # type: ignore[arg-type]
    assert median is not None
    assert median.value == pytest.approx(values[1][1] - values[0][1])  # type: ignore[operator]
    other = Pair("fmn", near, far, (result(params, found[0]), result(params | {"area_to": 2.0}, found[1])))
    assert Attack().paired(other).difference("curve_area", (values[0][0], values[1][0])) is None  # type: ignore[arg-type]
