"""Tango's score interval, and the same for the mean of values when a few of them carry the spread.

Source: Tango 1998, "Equivalence test and confidence interval for the difference in proportions for the
paired-sample design": the score interval of a paired difference, by the root of its equation.

Legend: n examples; z the quantile of the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from assay.service.metrics.statistics.distributions import normal_quantile

STEPS = 60  # Of the bisection; the interval [-1, 1] shrinks below the spacing of floats.
MAX_CARRIERS = 8  # Resamples miss k values in exp(-k) of cases: fewer make the bootstrap fail.
CARRIED_SHARE = 1 / 8  # Of n examples without outliers more than n / 8 carry the spread.
TYPICAL_SHARE = 0.01  # Median square over mean square: below this most values are the same.


def tango(more: float, fewer: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Tango's score interval of the difference of two proportions on the same n examples.

    `more` examples count for it: only the second of two models gets them right; `fewer` count against it:
    only the first one does. Both may be effective numbers, and so may n, at least their sum. The interval is
    around (more - fewer) / n, in [-1, 1], never of zero width.

    Raises ValueError: a count is negative, n < 1, they exceed n, or the confidence is not in (0, 1).
    """
    if n < 1 or more < 0 or fewer < 0 or more + fewer > n * (1 + 1e-9):
        raise ValueError(f"more + fewer must be in [0, n], n >= 1; got {more}, {fewer} and n={n}")
    z = normal_quantile(confidence)
    estimate = (more - fewer) / n
    high = _root(estimate, 1.0, lambda end: _tango_score(more, fewer, n, end) > -z)
    low = -_root(-estimate, 1.0, lambda end: _tango_score(fewer, more, n, end) > -z)
    return low, high


def few_carry(values: Sequence[float]) -> bool:
    """Whether so few values carry the spread around the median that resamples often miss them."""
    # They are (sum u^2)^2 / sum u^4 of the distances u to the median: k where k values are equally far and
    # the others are the same. The values are in any order, not all the same.
    squares = [one * one for one in _distances(values)[1]]
    whole, n = math.fsum(squares), len(squares)
    carriers = whole * whole / math.fsum(one * one for one in squares)
    alike = median(squares) < TYPICAL_SHARE * whole / n
    return carriers < MAX_CARRIERS and (carriers < CARRIED_SHARE * n or alike)


def carried_score(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of the mean of values when a few of them carry the spread; not all are the same.

    The distances u to the median are taken for s e with e in {-1, 0, 1}: s = (sum |u|^3 + h^3) / (sum u^2 +
    h^2), h the largest |u|, and as many e of either sign as give sum u^2 and sum u; then Tango's interval of
    e, times s. It allows for rare values on either side of the median, as far away as those that were seen.
    """
    largest, shares = _distances(values)
    squares = math.fsum(one * one for one in shares)
    scale = (math.fsum(abs(one) ** 3 for one in shares) + 1) / (squares + 1)
    balance = math.fsum(shares) / scale
    moved = max(squares / scale**2, abs(balance))
    more, fewer = (max(0.0, moved + sign * balance) / 2 for sign in (1, -1))
    low, high = (scale * largest * end for end in tango(more, fewer, len(values), confidence))
    return median(values) + low, median(values) + high


def _distances(values: Sequence[float]) -> tuple[float, list[float]]:
    """The largest distance to the median, and all distances as shares of it, with their signs."""
    middle = median(values)
    largest = max(abs(one - middle) for one in values)
    return largest, [(one - middle) / largest for one in values]


def _tango_score(more: float, fewer: float, n: float, difference: float) -> float:
    """The score of a difference; -infinity or infinity where it leaves no variance."""
    half = 2 * n
    linear = -more - fewer + (half - more + fewer) * difference
    constant = -fewer * difference * (1 - difference)
    share = (math.sqrt(max(0.0, linear**2 - 4 * half * constant)) - linear) / (2 * half)
    variance = n * (2 * share + difference * (1 - difference))
    distance = more - fewer - n * difference
    return distance / math.sqrt(variance) if variance > 1e-12 else math.copysign(math.inf, distance)


def _root(low: float, high: float, below: Callable[[float], bool]) -> float:
    """The place in [low, high] where `below` turns false."""
    if below(high):
        return high
    for _ in range(STEPS):
        middle = (low + high) / 2
        if below(middle):
            low = middle
        else:
            high = middle
    return high
