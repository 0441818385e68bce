"""Intervals and paired tests for the numbers that Assay reports, in pure Python.

Sources:
    Wilson 1927, "Probable inference, the law of succession, and statistical inference", eq. for
        the score interval (also Newcombe 1998, method 3).
    McNemar 1947, "Note on the sampling error of the difference between correlated proportions";
        the exact form: given b + c discordant pairs, b is Binomial(b + c, 1/2).
    Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapters 13 (percentile interval)
        and 16 (achieved significance level).
    David and Nagaraja 2003, "Order Statistics", section 2.2: the k-th smallest of n uniform
        numbers is Beta(k, n - k + 1).

Legend: n examples, R resamples. No result depends on the order of the given values.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

# Up to this many distinct values, a resample is drawn as counts (multinomial), not value by value:
# 0/1 outcomes and their differences then cost O(sqrt(n)) per resample instead of O(n).
MULTINOMIAL_VALUES = 8


class Estimate(NamedTuple):
    """A value with the ends of its confidence interval."""

    value: float
    low: float
    high: float


class PairedDifference(NamedTuple):
    """Mean of a - b over the same examples, its interval, and the two-sided p of "no difference"."""

    difference: float
    low: float
    high: float
    p_value: float


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion.

    Args:
        successes: how many of the n, in [0, n].
        n: sample size; 0 gives (0, 1).
        confidence: coverage, in (0, 1).

    Returns:
        (low, high), fractions in [0, 1]; low is exactly 0 for no success, high exactly 1 for n of n.

    Raises:
        ValueError: a count is negative, successes > n, or the confidence is out of range.
    """
    if n < 0 or not 0 <= successes <= n:
        raise ValueError(f"successes must be in [0, n]; got successes={successes}, n={n}")
    _check_confidence(confidence)
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def mcnemar(b: int, c: int) -> float:
    """Exact two-sided p of McNemar's test for two models on the same examples.

    Args:
        b: examples that only the first model gets right.
        c: examples that only the second model gets right.

    Returns:
        p in [0, 1]: min(1, 2 P[Binomial(b + c, 1/2) <= min(b, c)]); 1 without discordant pairs.

    Raises:
        ValueError: a count is negative.
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


def bootstrap_mean(
    values: Sequence[float], *, seed: int | str, confidence: float = 0.95, resamples: int = 2000
) -> Estimate:
    """Mean of per-example values with a percentile bootstrap interval.

    The same values (in any order) and seed give the same bits in every process. Cost: O(R n), or
    O(R sqrt(n)) for at most `MULTINOMIAL_VALUES` distinct values.

    Raises:
        ValueError: no value, a value that is not finite, or confidence or resamples out of range.
    """
    means = _resampled_means(values, seed, confidence, resamples)
    low, high = _percentiles(means, confidence)
    return Estimate(math.fsum(values) / len(values), low, high)


def bootstrap_median(
    values: Sequence[float], *, seed: int | str, confidence: float = 0.95, resamples: int = 2000
) -> Estimate:
    """Median of per-example values with a percentile bootstrap interval.

    No resample is drawn value by value: its k-th smallest value is the one at the rank of the k-th smallest
    of n uniform numbers. Cost: O(n log n + R). The same values (in any order) and seed give the same bits in
    every process.

    Raises:
        ValueError: no value, a value that is not finite, or confidence or resamples out of range.
    """
    ordered, rng = _prepared(values, seed, confidence, resamples)
    medians = sorted(_resampled_median(ordered, rng) for _ in range(resamples))
    low, high = _percentiles(medians, confidence)
    return Estimate(_quantile(ordered, 0.5), low, high)


def paired_bootstrap(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int | str,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> PairedDifference:
    """Difference of the means of two models on the same examples, resampling examples.

    Args:
        a: first model's value per example, (n,).
        b: second model's value of the same examples in the same order, (n,).
        seed: key of the draws; the same pairs and seed give the same bits.
        confidence: coverage of the interval, in (0, 1).
        resamples: R; the smallest possible p is 2 / (R + 1).

    Returns:
        mean(a) - mean(b), its percentile interval, and the two-sided achieved significance level.

    Raises:
        ValueError: lengths differ, no value, a value that is not finite, or an option out of range.
    """
    if len(a) != len(b):
        raise ValueError(f"paired values must have the same length; got {len(a)} and {len(b)}")
    differences = [float(x) - float(y) for x, y in zip(a, b, strict=True)]
    means = _resampled_means(differences, seed, confidence, resamples)
    return difference_from(math.fsum(differences) / len(differences), means, confidence)


def difference_from(value: float, sampled: Sequence[float], confidence: float = 0.95) -> PairedDifference:
    """A difference with the interval and the p of its resamples.

    Args:
        value: the difference over all examples.
        sampled: that of each resample, in ascending order, at least one.
        confidence: coverage of the interval, in (0, 1).
    """
    low, high = _percentiles(sampled, confidence)
    below, above = sum(one <= 0 for one in sampled), sum(one >= 0 for one in sampled)
    return PairedDifference(value, low, high, min(1.0, 2 * (min(below, above) + 1) / (len(sampled) + 1)))


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1); got {confidence}")


def _resampled_means(
    values: Sequence[float], seed: int | str, confidence: float, resamples: int
) -> list[float]:
    draw = _drawer(*_prepared(values, seed, confidence, resamples))
    return sorted(draw() for _ in range(resamples))


def _prepared(
    values: Sequence[float], seed: int | str, confidence: float, resamples: int
) -> tuple[list[float], random.Random]:
    """Checks the ranges; the values in ascending order and the source of the draws."""
    _check_confidence(confidence)
    if resamples < 1:
        raise ValueError(f"resamples must be >= 1; got {resamples}")
    if not values:
        raise ValueError("a bootstrap needs at least one value")
    if not all(map(math.isfinite, values)):
        raise ValueError("a bootstrap needs finite values")
    # random.Random hashes a text seed with SHA-512: the same in every process, for any PYTHONHASHSEED.
    return sorted(map(float, values)), random.Random(f"assay/bootstrap/{seed}")


def _resampled_median(ordered: list[float], rng: random.Random) -> float:
    """The median of one resample of the sorted values; of an even number, the mean of the middle two."""
    n = len(ordered)
    k = (n + 1) // 2
    uniform = rng.betavariate(k, n - k + 1)
    lower = ordered[min(n - 1, int(n * uniform))]
    if n % 2:
        return lower
    # Above the k-th smallest, the other n - k are uniform: their minimum is Beta(1, n - k) of the rest.
    uniform += (1 - uniform) * rng.betavariate(1, n - k)
    return (lower + ordered[min(n - 1, int(n * uniform))]) / 2


def _drawer(values: list[float], rng: random.Random) -> Callable[[], float]:
    """A function that draws the mean of one resample of the sorted values."""
    n = len(values)
    counts = Counter(values)
    if len(counts) > MULTINOMIAL_VALUES:
        return lambda: math.fsum(rng.choices(values, k=n)) / n

    def draw() -> float:
        terms, left, weight = [], n, n
        for value, count in counts.items():
            drawn = left if count == weight else _binomial(rng, left, count / weight)
            terms.append(value * drawn)
            left, weight = left - drawn, weight - count
        return math.fsum(terms) / n

    return draw


def _binomial(rng: random.Random, n: int, p: float) -> int:
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


def _percentiles(ordered: Sequence[float], confidence: float) -> tuple[float, float]:
    """The ends of the central interval of the sorted values, by linear interpolation."""
    return _quantile(ordered, 0.5 - confidence / 2), _quantile(ordered, 0.5 + confidence / 2)


def _quantile(ordered: Sequence[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
