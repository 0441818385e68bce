"""Student's t distribution in pure Python: two-sided p-values and quantiles.

P[|T| > t] = I_x(df / 2, 1/2) with x = df / (df + t^2) and I the regularised incomplete beta function
(Abramowitz and Stegun 1964, 26.5.27 and 26.7.1), which is evaluated by its continued fraction 26.5.8 with
Lentz's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

MIN_P = 1e-12  # Smaller p-values are not told apart.
TINY = 1e-300


def two_sided_p(t: float, df: float) -> float:
    """P[|T| >= |t|] in [0, 1]. Raises ValueError: df is not above 0."""
    if not df > 0:
        raise ValueError(f"the degrees of freedom must be above 0; got {df}")
    if math.isinf(t):
        return 0.0
    square = t * t
    return _incomplete_beta(df / 2, 0.5, df / (df + square), square / (df + square))


@lru_cache(maxsize=4096)
def quantile(p: float, df: float) -> float:
    """The t >= 0 with P[|T| >= t] = p, two-sided, in [1e-12, 1]; df above 0. Else a ValueError."""
    if not MIN_P <= p <= 1:
        raise ValueError(f"p must be in [{MIN_P}, 1]; got {p}")
    if p == 1:
        return 0.0
    log_p = math.log(p)

    def excess(log_t: float) -> float:
        return math.log(max(two_sided_p(math.exp(log_t), df), TINY)) - log_p

    low, high = -30.0, 1.0
    while excess(high) > 0:
        low, high = high, high + 2
    return math.exp(root(excess, low, high))


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a decreasing function crosses zero, between a point above and one below (the Illinois method)."""
    left, right, side = function(low), function(high), 0
    for _ in range(200):
        if not left > 0 > right or high - low <= 1e-12 * max(1.0, abs(low)):
            break
        middle = low + (high - low) * left / (left - right)
        value = function(middle)
        if value > 0:
            low, left = middle, value
            right = right / 2 if side > 0 else right
            side = 1
        else:
            high, right = middle, value
            left = left / 2 if side < 0 else left
            side = -1
        if abs(value) < 1e-13:
            return middle
    return low if left <= 0 else high if right >= 0 else (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """I_x(a, b), with `rest` = 1 - x, given apart so that neither is rounded away."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    if x < (a + 1) / (a + b + 2):
        return min(1.0, math.exp(log_front) * _fraction(a, b, x) / a)
    return max(0.0, 1 - math.exp(log_front) * _fraction(b, a, rest) / b)


def _fraction(a: float, b: float, x: float) -> float:
    value, c, d = TINY, TINY, 0.0
    term = 1.0
    for step in range(1, 10_000):
        d = 1 / ((1 + term * d) or TINY)
        c = (1 + term / c) or TINY
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    return value
