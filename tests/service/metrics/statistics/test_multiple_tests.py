"""Adjusted p-values against statsmodels, SciPy and the procedures as their papers state them."""

from __future__ import annotations

import math
import random

import pytest
from scipy.stats import false_discovery_control

from assay.service.metrics.statistics.multiple_tests import ADJUSTMENTS, benjamini_hochberg, holm

# statsmodels 0.15.0, multipletests(p, method="holm") and (p, method="fdr_bh").
STATSMODELS = [
    (
        [0.01, 0.04, 0.03, 0.005, 0.2, 0.8, 0.03],
        [0.06, 0.15, 0.15, 0.035, 0.4, 0.8, 0.15],
        [0.035, 0.056, 0.0525, 0.035, 0.23333333333333336, 0.8, 0.0525],
    ),
    ([0.5], [0.5], [0.5]),
    (
        [0.0, 1.0, 1.0, 0.02, 1e-12, 0.051],
        [0.0, 1.0, 1.0, 0.08, 5e-12, 0.153],
        [0.0, 1.0, 1.0, 0.04, 3e-12, 0.0765],
    ),
    ([0.9, 0.91, 0.6], [1.0, 1.0, 1.0], [0.91, 0.91, 0.91]),
]


@pytest.mark.parametrize(("p", "by_holm", "by_rate"), STATSMODELS)
def test_equals_statsmodels(p: list[float], by_holm: list[float], by_rate: list[float]) -> None:
    assert holm(p) == pytest.approx(by_holm, rel=1e-12)
    assert benjamini_hochberg(p) == pytest.approx(by_rate, rel=1e-12)


def test_benjamini_hochberg_equals_scipy_on_random_values() -> None:
    draws = random.Random(0)
    for m in (1, 2, 7, 100):
        p = [draws.random() ** 3 for _ in range(m)]
        assert benjamini_hochberg(p) == pytest.approx(list(false_discovery_control(p)), rel=1e-12)


def test_holm_rejects_what_the_sequential_procedure_rejects() -> None:
    """Holm 1979: go up the ordered values while p_(i) <= level / (m - i + 1)."""
    draws = random.Random(1)
    for _ in range(200):
        p = [draws.random() ** 4 for _ in range(draws.randint(1, 12))]
        rejected = 0
        for rank, value in enumerate(sorted(p)):
            if value > 0.05 / (len(p) - rank):
                break
            rejected += 1
        assert sum(value <= 0.05 for value in holm(p)) == rejected


def test_adjusted_values_keep_their_places_and_never_fall_below_the_raw_ones() -> None:
    p = [0.3, 0.01, 0.02, 0.01]
    for adjust in ADJUSTMENTS.values():
        found = adjust(p)
        assert all(one >= raw for one, raw in zip(found, p, strict=True))
        assert adjust(p[::-1]) == found[::-1]
        assert adjust([]) == []


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, math.inf])
@pytest.mark.parametrize("name", sorted(ADJUSTMENTS))
def test_refuses_what_is_no_p_value(name: str, wrong: float) -> None:
    adjust = {str(one): function for one, function in ADJUSTMENTS.items()}[name]
    with pytest.raises(ValueError, match=r"in \[0, 1\]; got"):
        adjust([0.5, wrong])
