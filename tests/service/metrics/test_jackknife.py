"""Jackknife intervals against their formulas and SciPy's quantiles."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from assay.service.metrics.jackknife import Variance, jackknife_variance, logit_bounds

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
