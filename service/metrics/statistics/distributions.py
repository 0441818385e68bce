"""Quantiles and tail probabilities of the normal distribution, draws of the binomial (t: `student_t`)."""

from __future__ import annotations

import math
import random
from statistics import NormalDist


def normal_p(z: float) -> float:
    """Two-sided p of a normal score."""
    return math.erfc(abs(z) / math.sqrt(2))


def normal_tail(z: float) -> float:
    """P[X >= z] of a normal score X."""
    return math.erfc(z / math.sqrt(2)) / 2


def normal_quantile(confidence: float) -> float:
    """z of a central interval."""
    return NormalDist().inv_cdf(0.5 + checked_confidence(confidence) / 2)


def binomial_draw(rng: random.Random, n: int, p: float) -> int:
    """One draw of Binomial(n, p), 0 < p < 1, by inversion outwards from the mode.

    `random.Random.binomialvariate` needs Python 3.12.
    """
    mode = min(n, int((n + 1) * p))
    log_choose = math.lgamma(n + 1) - math.lgamma(mode + 1) - math.lgamma(n - mode + 1)
    at_mode = math.exp(log_choose + mode * math.log(p) + (n - mode) * math.log1p(-p))
    odds = p / (1 - p)
    u = rng.random() - at_mode
    if u < 0:
        return mode
    low, high, p_low, p_high = mode, mode, at_mode, at_mode
    while low > 0 or high < n:
        if high < n:
            p_high *= (n - high) / (high + 1) * odds
            high += 1
            u -= p_high
            if u < 0:
                return high
        if low > 0:
            p_low *= low / ((n - low + 1) * odds)
            low -= 1
            u -= p_low
            if u < 0:
                return low
        if p_low + p_high < 1e-18 * at_mode:
            break
    return mode  # rounding left a sliver of u (about 1e-12) beyond both tails


def checked_confidence(confidence: float) -> float:
    """The confidence; a `ValueError` where it is not in (0, 1)."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1); got {confidence}")
    return confidence
