"""Score intervals of means of bounded values, and of paired differences of two such means.

Sources:
    Korn and Graubard 1998, "Confidence intervals for proportions with small expected number of positive
        counts estimated from survey data": an effective sample size n p (1 - p) / s^2 in place of n.
    Tango 1998: `tango.py`.

Both effective forms are ours where they add one observation of the largest possible spread: without it, a
hundred equal values would have an interval of zero width. For values of 0 and 1 they are Wilson's and Tango's
intervals exactly; `benchmarks/coverage.py` measures the coverage of both.

Legend: n examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.service.metrics.statistics.intervals import wilson
from assay.service.metrics.statistics.tango import tango


def effective_wilson(
    values: Sequence[float], *, highest: float = 1.0, confidence: float = 0.95
) -> tuple[float, float]:
    """Score interval, in [0, highest], of the mean of bounded values in [0, highest], one per example.

    With m the mean as a share of the range, f = n min(m, 1 - m) and k = s^2 / (m (1 - m)), the design effect
    is (k f + 1) / (f + 1): k, with one observation of a design effect of 1 beside the f "failures". The
    interval is never of zero width. Raises ValueError: no value, one out of range, or the confidence, in (0,
    1), is.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    if wrong := [value for value in values if not 0 <= value <= highest * (1 + 1e-9)]:
        raise ValueError(f"values must be in [0, {highest}]; got {wrong[0]}")
    n = len(values)
    m = min(1.0, math.fsum(values) / (n * highest))
    spread = math.fsum((value / highest - m) ** 2 for value in values) / n
    largest, failures = m * (1 - m), n * min(m, 1 - m)
    share = min(1.0, spread / largest) if largest > 0 else 1.0
    size = n * (failures + 1) / (share * failures + 1)
    low, high = wilson(m * size if m < 1 else size, size, confidence)
    return highest * low, highest * high


def paired_score(
    differences: Sequence[float], *, largest: float = 1.0, size: float | None = None, confidence: float = 0.95
) -> tuple[float, float]:
    """Score interval of the mean of paired differences, second less first, in [-largest, largest].

    The differences are taken for s e with e in {-1, 0, 1}: s = (sum d^2 + h^2) / (sum |d| + h), h the largest
    possible difference, and as many e of either sign as give sum |d| and sum d; then Tango's interval of e,
    times s. Without a difference among n examples it is Tango's interval of 0 of n, times h. `size` is the
    number of examples where it is the mean of fewer than n: sum d / size is between the ends. Raises
    ValueError: no difference is given, a difference is out of range, or the confidence is outside (0, 1).
    """
    if not differences:
        raise ValueError("an interval needs at least one difference")
    if wrong := [one for one in differences if not abs(one) <= largest * (1 + 1e-9)]:
        raise ValueError(f"differences must be in [-{largest}, {largest}]; got {wrong[0]}")
    moved = math.fsum(map(abs, differences))
    n, balance = len(differences) if size is None else size, math.fsum(differences)
    scale = (math.fsum(one * one for one in differences) + largest**2) / (moved + largest)
    # Of more differences than examples: no more than n can move, with one of the largest beside them.
    scale = max(scale, moved / n, (moved + largest) / (n + 1))
    more, fewer = (max(0.0, moved + sign * balance) / (2 * scale) for sign in (1, -1))
    low, high = tango(more, fewer, n, confidence)
    return scale * low, scale * high
