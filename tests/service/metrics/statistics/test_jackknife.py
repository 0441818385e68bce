"""Jackknife intervals against their formulas and SciPy's quantiles."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from assay.service.metrics.statistics.estimates import GROUPS, groups
from assay.service.metrics.statistics.intervals import NO_SPREAD, TOO_FEW
from assay.service.metrics.statistics.jackknife import (
    Variance,
    jackknife_variance,
    logit_bounds,
    student_difference,
)

VALUES = [0.1, 0.4, 0.4, 0.7, 0.9]


def test_the_variance_of_a_mean_is_the_usual_one() -> None:
    total, n = math.fsum(VALUES), len(VALUES)
    found = jackknife_variance([(total - value) / (n - 1) for value in VALUES])
    assert found.value == pytest.approx(stats.sem(VALUES) ** 2)
    assert found.df == n - 1


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_is_students_on_the_logit_scale(confidence: float) -> None:
    low, high, method = logit_bounds(0.8, [Variance(0.01, 9)], confidence)
    half = stats.t.ppf((1 + confidence) / 2, 9) * 0.1 / (0.8 * 0.2)
    assert method == "t"
    assert low == pytest.approx(stats.logistic.cdf(math.log(4) - half))
    assert high == pytest.approx(stats.logistic.cdf(math.log(4) + half))


def test_degrees_of_freedom_of_two_samples_are_satterthwaites() -> None:
    df = 0.03**2 / (0.01**2 / 9 + 0.02**2 / 99)
    half = stats.t.ppf(0.975, df) * math.sqrt(0.03) / 0.25
    low, high, _ = logit_bounds(0.5, [Variance(0.01, 9), Variance(0.02, 99)])
    assert low == pytest.approx(stats.logistic.cdf(-half))
    assert high == pytest.approx(stats.logistic.cdf(half))


def test_ends_are_shares_however_large_the_variance() -> None:
    low, high, _ = logit_bounds(1e-6, [Variance(1.0, 1)])
    assert 0 <= low < high <= 1  # type: ignore[operator]


@pytest.mark.parametrize(("value", "variance"), [(0.0, 0.1), (1.0, 0.1), (0.5, 0.0)])
def test_no_interval_without_spread_or_at_a_limit(value: float, variance: float) -> None:
    assert logit_bounds(value, [Variance(variance, 9)]) == (None, None, "no_spread")


def test_a_difference_has_students_interval_and_test() -> None:
    found = student_difference(0.2, [Variance(0.006, 9), Variance(0.003, 39)], 50)
    error = math.sqrt(0.009)
    df = 0.009**2 / (0.006**2 / 9 + 0.003**2 / 39)
    half = stats.t.ppf(0.975, df) * error
    assert found.bounds == (pytest.approx(0.2 - half), pytest.approx(0.2 + half), "t")
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.2 / error, df))
    assert found.df == pytest.approx(df)
    assert student_difference(0.9, [Variance(0.04, 9)], 10).bounds.high == 1
    assert student_difference(-0.9, [Variance(0.04, 9)], 10).bounds.low == -1


@pytest.mark.parametrize(
    ("value", "variance", "n", "bounds", "p"),
    [(0.2, 0.01, 9, TOO_FEW, None), (0.2, 0.0, 50, NO_SPREAD, None), (0.0, 0.0, 50, NO_SPREAD, 1.0)],
)
def test_without_an_interval_only_no_difference_has_a_p(
    value: float, variance: float, n: int, bounds: object, p: float | None
) -> None:
    found = student_difference(value, [Variance(variance, n - 1)], n)
    assert (found.bounds, found.p_value) == (bounds, p)


@pytest.mark.parametrize("n", [1, 7, 100, 101, 1003])
def test_groups_are_of_about_equal_size_and_hold_every_place_once(n: int) -> None:
    found = groups(n)
    assert len(found) == min(n, GROUPS)
    assert sorted(place for group in found for place in group) == list(range(n))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("period", [2, 10, 100, 1000])
def test_groups_do_not_follow_the_order_of_classes(period: int) -> None:
    # Classes in turn, or one after the other: the groups' means spread as those of random groups.
    n = 10_000
    for places in (range(n), sorted(range(n), key=lambda place: place % period)):
        ranks = {place: rank for rank, place in enumerate(places)}
        values = [float(ranks[place] % period >= period // 2) for place in range(n)]
        found = [math.fsum(values[place] for place in group) / len(group) for group in groups(n)]
        assert stats.tstd(found) == pytest.approx(0.5 / math.sqrt(n / GROUPS), rel=0.3)
