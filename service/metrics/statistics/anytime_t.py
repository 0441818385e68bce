"""A t-test over seeds that may be looked at after every seed: p-values and critical values.

The fixed-n t rejects at 5 % in 29 % of studies without a difference that are looked at after each of 2 to
30 seeds. Here the effect size delta = mean / sd has the prior N(0, G) and sigma the right-Haar prior
d sigma / sigma. With v = n - 1 and t the usual t of n values, the ratio of the marginal densities is

    BF_n = (1 + n G)^(-1/2) [(1 + t^2 / v) / (1 + t^2 / (v (1 + n G)))]^((v + 1) / 2)

Under "mean 0" it is, for normal values of any sd, a martingale with mean 1 in the filtration of the t_n: so
P[BF_n >= 1 / p at any n] <= p (Lai 1976, "On Confidence Sequences"; Perez-Ortiz et al. 2024, "E-statistics,
Group Invariance and Anytime-Valid Testing"; Wang and Ramdas 2024, "Anytime-Valid t-Tests and Confidence
Sequences for Gaussian Means with Unknown Variance"). The p-value is 1 / BF_n, and at most 1.

BF_n is at most (1 + n G)^(v / 2): too few values never reject. G = 5 is the prior with the
least greatest loss against the best prior for each n of 4 to 12, at 5 %: the critical value is at most 5.7 %
above the least.
"""

from __future__ import annotations

import math

G = 5.0  # Prior variance of the effect size
FIRST = 4  # The least n with a critical value at 5 %


def critical(p: float, n: float) -> float:
    """The t >= 0 of n values with the anytime-valid two-sided p; infinite where n values do not reach it.

    p in (0, 1], n at least 2; else a ValueError.
    """
    if not 0 < p <= 1:
        raise ValueError(f"p must be in (0, 1]; got {p}")
    log_ratio = math.log1p(_values(n) * G)
    # (1 + t^2 / v) / (1 + t^2 / (v ratio)) = e^log_q has a solution below the ratio alone.
    log_q = (log_ratio - 2 * math.log(p)) / n
    if log_q >= log_ratio:
        return math.inf
    return math.sqrt((n - 1) * math.expm1(log_q) / -math.expm1(log_q - log_ratio))


def p_value(t: float, n: float) -> float:
    """The anytime-valid two-sided p of the t of n values, in (0, 1]. Raises ValueError: n is below 2."""
    log_ratio, v = math.log1p(_values(n) * G), n - 1
    if math.isinf(t):
        return math.exp(-v / 2 * log_ratio)
    square = t * t / v
    log_grown = math.log1p(square) - math.log1p(square * math.exp(-log_ratio))
    return min(1.0, math.exp((log_ratio - n * log_grown) / 2))


def _values(n: float) -> float:
    if not n >= 2:
        raise ValueError(f"n must be at least 2; got {n}")
    return n
