"""Intervals of shares that are no means, and tests of their differences, from values without each example.

The jackknife's variance (Efron 1982, "The Jackknife, the Bootstrap and Other Resampling Plans", chapter 3; of
two samples Arvesen 1969, "Jackknifing U-Statistics") with Student's t: of a share on the logit scale, where
it has no limits, of the paired difference of two shares on their own. The degrees of freedom of several
samples are Satterthwaite's, as in Welch 1947.

Legend: n examples, or groups of equal size, in a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from assay.service.metrics.statistics.intervals import MIN_EXAMPLES, NO_SPREAD, TOO_FEW, Bounds
from assay.service.metrics.statistics.student_t import quantile, two_sided_p

ROUNDING = 1e-12  # A standard error below this is rounding.


class Variance(NamedTuple):
    """The variance of a value that is due to one sample, and its degrees of freedom."""

    value: float
    df: int


def jackknife_variance(left_out: Sequence[float]) -> Variance:
    """The variance, (n - 1) / n sum of squares, of values without each of n >= 2 examples or groups."""
    n = len(left_out)
    mean = math.fsum(left_out) / n
    squares = math.fsum((one - mean) ** 2 for one in left_out)
    return Variance((n - 1) / n * squares, n - 1)


def logit_bounds(value: float, variances: Sequence[Variance], confidence: float = 0.95) -> Bounds:
    """Student's interval on the logit scale, in [0, 1]; `NO_SPREAD` at 0, 1, or without any change."""
    error, df = _error(variances)
    if not 0 < value < 1 or error <= ROUNDING:
        return NO_SPREAD
    centre = math.log(value / (1 - value))
    half = quantile(1 - confidence, df) * error / (value * (1 - value))
    low, high = (_inverse_logit(centre + side * half) for side in (-1, 1))
    return Bounds(low, high, "t")


class TestedDifference(NamedTuple):
    """A difference, its interval, the two-sided p (None without an interval), and the degrees of freedom."""

    value: float
    bounds: Bounds
    p_value: float | None
    df: float


def student_difference(
    value: float, variances: Sequence[Variance], n: int, confidence: float = 0.95
) -> TestedDifference:
    """Student's interval, in [-1, 1], and test; `TOO_FEW`, or `NO_SPREAD` where no example counts."""
    error, df = _error(variances)
    enough = n >= MIN_EXAMPLES and len(variances) > 0
    bounds = NO_SPREAD if enough else TOO_FEW
    if enough and error > ROUNDING:
        half = quantile(1 - confidence, df) * error
        bounds = Bounds(max(-1.0, value - half), min(1.0, value + half), "t")
        return TestedDifference(value, bounds, two_sided_p(value / error, df), df)
    return TestedDifference(value, bounds, None if value else 1.0, df)


def _error(variances: Sequence[Variance]) -> tuple[float, float]:
    """The standard error and its degrees of freedom."""
    variance = math.fsum(one.value for one in variances)
    if variance == 0 or len(variances) == 1:
        return math.sqrt(variance), float(sum(one.df for one in variances))
    return math.sqrt(variance), variance**2 / math.fsum(one.value**2 / one.df for one in variances)


def _inverse_logit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0
