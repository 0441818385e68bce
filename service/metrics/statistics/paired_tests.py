"""Paired tests of two models on the same examples, by exchanging the models.

Sources:
    McNemar 1947, "Note on the sampling error of the difference between correlated proportions"; the exact
        form: given b + c discordant pairs, b is Binomial(b + c, 1/2).
    Fisher 1935, "The Design of Experiments", section 21: the randomisation test of paired differences.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from assay.service.metrics.statistics.distributions import normal_tail

HALF = 12  # Of twice as many differences all patterns of signs are counted, of more the largest ones'.
SAME = 1e-12  # Sums that differ by less than this share of their terms are the same up to rounding.


def mcnemar(b: int, c: int) -> float:
    """Exact two-sided p of McNemar's test for two models on the same examples, in [0, 1].

    min(1, 2 P[Binomial(b + c, 1/2) <= min(b, c)]); 1 without discordant pairs. A negative count is a
    ValueError.
    """
    if b < 0 or c < 0:
        raise ValueError(f"the counts of discordant pairs must be >= 0; got b={b}, c={c}")
    n, k = b + c, min(b, c)
    if b == c:
        return 1.0
    # The largest term as a ratio of exact integers; the others follow from it: C(n, j-1) = C(n, j) j/(n-j+1).
    largest = math.comb(n, k) / (1 << n)
    total = term = 1.0
    for j in range(k, 0, -1):
        term *= j / (n - j + 1)
        total += term
        if term < total * 2.0**-60:
            break
    return min(1.0, 2 * largest * total)


def sign_flip(differences: Sequence[float], *, tie: float = 0.0) -> float:
    """Two-sided p, in [0, 1], of "no difference" for the mean of paired differences, second less first.

    With models that are alike, the sign of each difference is a fair coin. p is the share of the patterns of
    signs with |sum| at least that found, exact for up to 24 differences. Of more the patterns of the 12
    largest are counted, and the sum of the others is normal; p is at least 2 / 2^n. For differences of -1, 0
    and 1 the count is McNemar's; without any p is 1. Sums that differ by less than the share `tie` of the
    largest difference are the same. Raises ValueError: a difference is not finite.
    """
    if not all(map(math.isfinite, differences)):
        raise ValueError("a paired test needs finite differences")
    sizes = sorted((abs(one) for one in differences if one), reverse=True)
    if not sizes:
        return 1.0
    total = abs(math.fsum(differences)) - SAME * math.fsum(sizes) - tie * sizes[0]
    if total <= 0:
        return 1.0
    sums, others = _sums(sizes[:HALF]), sizes[HALF:]
    if len(others) <= HALF:
        known = sorted(_sums(others))
        least = sum(len(known) - bisect_left(known, total - part) for part in sums)
        return 2 * least / (len(sums) * len(known))
    rest = math.sqrt(math.fsum(one * one for one in others))
    tails = 2 * math.fsum(normal_tail((total - part) / rest) for part in sums)
    return min(1.0, max(tails / len(sums), 2.0 ** (1 - len(sizes))))


def _sums(sizes: Sequence[float]) -> list[float]:
    """The sum of each pattern of signs."""
    sums = [0.0]
    for one in sizes:
        sums = [part + sign * one for part in sums for sign in (1, -1)]
    return sums
