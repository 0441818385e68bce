from __future__ import annotations

import math

import pytest
from scipy import stats

from assay.service.metrics.statistics.student_t import MIN_P, quantile, two_sided_p

FREEDOMS = [1.0, 2.0, 3.0, 4.5, 9.0, 11.0, 30.3, 100.0, 359.0, 49_999.0, 1e6]


@pytest.mark.parametrize("t", [0.0, 1e-6, 0.3, 1.0, 2.5, 12.7, 1e4])
def test_one_and_two_degrees_of_freedom_have_closed_forms(t: float) -> None:
    assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-9, abs=1e-12)
    assert two_sided_p(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("df", FREEDOMS)
def test_p_and_quantile_are_those_of_scipy(df: float) -> None:
    for t in (0.1, 0.7, 1.96, 4.3, 20.0):
        assert two_sided_p(t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-7)
    for p in (MIN_P, 1e-6, 0.01, 0.05, 0.1, 0.4, 0.5, 0.99):
        assert quantile(p, df) == pytest.approx(stats.t.isf(p / 2, df), rel=1e-7)


def test_ends() -> None:
    assert two_sided_p(math.inf, 3) == 0
    assert two_sided_p(0, 3) == 1
    assert quantile(1, 3) == 0


@pytest.mark.parametrize(("p", "df"), [(0, 3), (1.1, 3), (0.05, 0), (0.05, -1)])
def test_arguments_out_of_range_are_refused(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        quantile(p, df)
