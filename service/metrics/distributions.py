"""Quantiles, tail probabilities and draws of the normal, Student's and the binomial distribution.

Source: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions", sections 26.2 and 26.7.
"""

from __future__ import annotations

import math
import random
from statistics import NormalDist


def normal_p(z: float) -> float:
    """Two-sided p of a normal score."""
    return math.erfc(abs(z) / math.sqrt(2))


def normal_quantile(confidence: float) -> float:
    """z of a central interval.

    Raises:
        ValueError: the confidence is not in (0, 1).
    """
    return NormalDist().inv_cdf(0.5 + checked_confidence(confidence) / 2)


def t_quantile(freedom: int, confidence: float) -> float:
    """Quantile of Student's t of a central interval, to 1e-9.

    Abramowitz and Stegun 1964: the sums 26.7.3 and 26.7.4, and above 100 degrees of freedom the expansion
    26.7.5.
    """
    z = normal_quantile(confidence)
    if freedom > 100:
        parts = (
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
            (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
        )
        return z + math.fsum(part / freedom**power for power, part in enumerate(parts, 1))
    low, high = 0.0, 1.0
    while _t_inside(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_inside(middle, freedom) < confidence else (low, middle)
    return high


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
    """The confidence, if it is in (0, 1).

    Raises:
        ValueError: it is not.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1); got {confidence}")
    return confidence


def _t_inside(t: float, freedom: int) -> float:
    """P[|T| <= t]."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for step in range(1 + odd, freedom, 2):
        total += term
        term *= square * step / (step + 1)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
