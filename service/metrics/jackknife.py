"""Intervals of shares that are no means, from their values without each example.

The jackknife's variance (Efron 1982, "The Jackknife, the Bootstrap and Other Resampling Plans", chapter 3; of
two samples Arvesen 1969, "Jackknifing U-Statistics") with Student's t on the logit scale, where a share has
no limits. The degrees of freedom of several samples are Satterthwaite's, as in Welch 1947.

Legend: n examples, or groups of equal size, of one sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from assay.service.metrics.intervals import NO_SPREAD, Bounds
from assay.service.metrics.student_t import quantile


class Variance(NamedTuple):
    """The variance of a value that is due to one sample, and its degrees of freedom."""

    value: float
    df: int


def jackknife_variance(left_out: Sequence[float]) -> Variance:
    """The jackknife's variance, (n - 1) / n times the sum of squares around the mean.

    Args:
        left_out: the value without each example of the sample, or without each group, (n,), n at least 2.
    """
    n = len(left_out)
    mean = math.fsum(left_out) / n
    squares = math.fsum((one - mean) ** 2 for one in left_out)
    return Variance((n - 1) / n * squares, n - 1)


def logit_bounds(value: float, variances: Sequence[Variance], confidence: float = 0.95) -> Bounds:
    """Student's interval of a share on the logit scale.

    Args:
        value: in [0, 1].
        variances: of each sample, at least one.
        confidence: coverage, in (0, 1).

    Returns:
        Ends in [0, 1], or `NO_SPREAD` where the value is 0 or 1, or no example changes it.
    """
    variance = math.fsum(one.value for one in variances)
    error = math.sqrt(variance)
    if not 0 < value < 1 or error <= 1e-12:
        return NO_SPREAD
    df = variance**2 / math.fsum(one.value**2 / one.df for one in variances)
    centre = math.log(value / (1 - value))
    half = quantile(1 - confidence, df) * error / (value * (1 - value))
    low, high = (_inverse_logit(centre + side * half) for side in (-1, 1))
    return Bounds(low, high, "t")


def _inverse_logit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0
