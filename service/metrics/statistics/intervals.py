"""Intervals and paired tests for the numbers that Assay reports, in pure Python.

Sources:
    Wilson 1927, "Probable inference, the law of succession, and statistical inference", eq. for
        the score interval (also Newcombe 1998, method 3).
    DiCiccio and Efron 1996, "Bootstrap Confidence Intervals" (the studentised one).
    Hettmansperger and Sheather 1986, "Confidence intervals based on interpolated order statistics".
    Bonett and Price 2020, "Interval estimation for linear functions of medians in within-subjects and mixed
        designs"; Price and Bonett 2001, "Estimating the variance of the sample median".

Legend: n examples, R resamples. No result depends on the order of the given values.
"""

from __future__ import annotations

import math
import operator
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist, median
from typing import NamedTuple

from assay.service.contract.results import IntervalMethod
from assay.service.metrics.statistics.distributions import (
    binomial_draw,
    checked_confidence,
    normal_p,
    normal_quantile,
)
from assay.service.metrics.statistics.student_t import quantile
from assay.service.metrics.statistics.tango import carried_score, few_carry

# Up to this many distinct values, a resample is drawn as counts (multinomial), not value by value:
# 0/1 outcomes and their differences then cost O(sqrt(n)) per resample instead of O(n).
MULTINOMIAL_VALUES = 8
MIN_EXAMPLES = 10  # The bootstrap of fewer examples covers too rarely (`benchmarks/coverage.py`).
MAX_STUDENTISED = 500  # Above, Student's interval covers as often as the studentised bootstrap.
STUDENTISED_RESAMPLES = 1000
SAME = 1e-12  # Values that differ by less than this share of their size are the same up to rounding.


class Bounds(NamedTuple):
    """The ends of a confidence interval and their source; the ends are None where the source is a reason."""

    low: float | None
    high: float | None
    method: IntervalMethod


# No interval: without a value, of too few examples, of examples that do not differ.
NO_BOUNDS = Bounds(None, None, "none")
TOO_FEW = Bounds(None, None, "too_few")
NO_SPREAD = Bounds(None, None, "no_spread")


def wilson(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, (low, high) in [0, 1].

    n may be an effective sample size; 0 gives (0, 1). low is exactly 0 for no success, high exactly 1 for n
    of n. Raises ValueError: a count is negative, successes > n, or the confidence is not in (0, 1).
    """
    if n < 0 or not 0 <= successes <= n:
        raise ValueError(f"successes must be in [0, n]; got successes={successes}, n={n}")
    z = normal_quantile(confidence)
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def median_bounds(values: Sequence[float], confidence: float = 0.95) -> Bounds:
    """Interval of a median by its order statistics, interpolated so that it covers as often as it says.

    Hettmansperger and Sheather 1986: between the k-th smallest and largest values, which cover more, and the
    next ones, which cover less. No draws; any order of the values gives the same bits. `TOO_FEW` below 6
    values, where no pair covers 95 %, and `NO_SPREAD` where both ends are the same. Raises ValueError: a
    value is not finite, or the confidence is out of range.
    """
    ordered, outside = _finite(values), (1 - checked_confidence(confidence)) / 2
    n = len(ordered)
    if 0.5**n > outside:
        return TOO_FEW
    # `below` is P[Binomial(n, 1/2) <= k], `term` its last part. What is below ten standard deviations is 0.
    k = max(0, math.floor(n / 2 - 5 * math.sqrt(n)))
    term = below = _coins(n, k)
    while True:
        k += 1
        term *= (n - k + 1) / k
        if below + term > outside:
            break
        below += term
    wider, narrower = 1 - 2 * below, 1 - 2 * (below + term)
    share = (wider - confidence) / (wider - narrower)
    # Linear interpolation would be between normal tails; this one is for the middle of a distribution.
    part = (n - k) * share / (k + (n - 2 * k) * share) if share < 1 else 1.0
    low = ordered[k - 1] + part * (ordered[min(k, n - 1)] - ordered[k - 1])
    high = ordered[n - k] - part * (ordered[n - k] - ordered[max(n - k - 1, 0)])
    return Bounds(low, high, "order_statistics") if low < high else NO_SPREAD


def _coins(n: int, k: int) -> float:
    """P[Binomial(n, 1/2) = k]; 0.5 ** n alone is 0 from n = 1075 on."""
    return math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2))


def median_error(values: Sequence[float]) -> float:
    """The standard error of a median of at least two values (Price and Bonett 2001).

    The distance of the order statistics c and n + 1 - c, c near (n + 1) / 2 - sqrt(n), divided by the
    distance of the normal quantiles of their binomial coverage. Raises ValueError: there are fewer values,
    or a value is not finite.
    """
    ordered, n = _finite(values), len(values)
    if n < 2:
        raise ValueError("a standard error needs at least two values")
    c = max(1, math.floor((n + 1) / 2 - math.sqrt(n) + 0.5))
    outside = math.fsum(_coins(n, k) for k in range(c))
    return (ordered[n - c] - ordered[c - 1]) / (2 * NormalDist().inv_cdf(1 - outside))


class MedianDifference(NamedTuple):
    """The difference of two medians with its interval; p is None where it would mean nothing."""

    value: float
    bounds: Bounds
    p_value: float | None


def median_difference(
    first: Mapping[str, float], second: Mapping[str, float], confidence: float = 0.95
) -> MedianDifference:
    """The difference of two medians of partly the same examples, second less first.

    After Bonett and Price 2020, who have the same examples in both and count those below both medians. Here
    the covariance of the medians is se1 se2 (C - D) / sqrt(n1 n2), of C examples on the same side of both
    medians and D on different sides. `TOO_FEW` where either has fewer than `MIN_EXAMPLES`, `NO_SPREAD` where
    values around the medians are the same. Raises ValueError: either is empty, a value is not finite, or the
    confidence is out of range.
    """
    before, after = (median(side.values()) for side in (first, second))
    value = after - before
    if min(len(first), len(second)) < MIN_EXAMPLES:
        return MedianDifference(value, TOO_FEW, None if value else 1.0)
    error, other = (median_error(list(side.values())) for side in (first, second))
    signs = (_sign(first[one] - before) * _sign(second[one] - after) for one in first.keys() & second.keys())
    shared = sum(signs) / math.sqrt(len(first) * len(second))
    variance = error**2 + other**2 - 2 * shared * error * other
    if not variance > (SAME * max(abs(before), abs(after))) ** 2:
        return MedianDifference(value, NO_SPREAD, None if value else 1.0)
    score = value / math.sqrt(variance)
    half = normal_quantile(confidence) * math.sqrt(variance)
    return MedianDifference(value, Bounds(value - half, value + half, "price_bonett"), normal_p(score))


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)


def mean_bounds(values: Sequence[float], *, seed: int | str, confidence: float = 0.95) -> Bounds:
    """Interval of the mean of values without known limits, one per example.

    From `MIN_EXAMPLES` to `MAX_STUDENTISED` values the studentised bootstrap (DiCiccio and Efron 1996), R =
    1000; from more, and from 2 to 9, Student's t. Where few of `MIN_EXAMPLES` or more values carry the
    spread, resamples that miss them have next to none, and t is too narrow: the score interval of `tango.py`.
    The values in any order and the seed give the same bits. Raises ValueError: a value is not finite, or the
    confidence is out of range.
    """
    ordered, n = _finite(values), len(values)
    checked_confidence(confidence)
    if n < 2:
        return TOO_FEW
    mean = math.fsum(ordered) / n
    around = [value - mean for value in ordered]
    spread = math.sqrt(math.fsum(map(operator.mul, around, around)) / n)
    if spread <= SAME * max(map(abs, ordered)):
        return NO_SPREAD
    if n >= MIN_EXAMPLES and few_carry(ordered):
        return Bounds(*carried_score(ordered, confidence), "tango_effective")
    if MIN_EXAMPLES <= n <= MAX_STUDENTISED:
        low, high = _ends(_mean_scores(around, random.Random(f"assay/bootstrap/{seed}")), confidence)
        if math.isfinite(low) and math.isfinite(high):
            return Bounds(mean - high * spread, mean - low * spread, "studentised")
    half = quantile(1 - confidence, n - 1) * spread / math.sqrt(n - 1)
    return Bounds(mean - half, mean + half, "t")


def ratio_bounds(
    pairs: Sequence[tuple[float, float]], *, seed: int | str, confidence: float = 0.95
) -> Bounds:
    """Interval of a ratio of sums, sum a / sum b of pairs (a, b >= 0), without known limits.

    From `MIN_EXAMPLES` to `MAX_STUDENTISED` pairs the studentised bootstrap, R = 1000: every resample has a
    ratio and a standard error of its own, by the squares of a - ratio b. For other numbers of pairs, and
    where few pairs carry the spread, as `mean_bounds` of the linearised ratio. The pairs in any order and
    the seed, the key of the draws, give the same bits. Raises ValueError: no b is above 0, a number is not
    finite, or the confidence is out of range.
    """
    n, whole = len(pairs), math.fsum(b for _, b in pairs)
    if not whole > 0:
        raise ValueError(f"a ratio needs a denominator above 0; got {whole} of {n} pairs")
    ratio = math.fsum(a for a, _ in pairs) / whole
    rows = sorted((a - ratio * b, b) for a, b in pairs)
    terms = _finite([ratio + rest * n / whole for rest, _ in rows])
    error = math.sqrt(math.fsum(rest * rest for rest, _ in rows)) / whole
    spread = math.sqrt(n) * error > SAME * max(map(abs, terms))
    if MIN_EXAMPLES <= n <= MAX_STUDENTISED and spread and not few_carry(terms):
        low, high = _ends(_ratio_scores(rows, random.Random(f"assay/bootstrap/{seed}")), confidence)
        if math.isfinite(low) and math.isfinite(high):
            return Bounds(ratio - high * error, ratio - low * error, "studentised")
    return mean_bounds(terms, seed=seed, confidence=confidence)


def _finite(values: Sequence[float]) -> list[float]:
    if not values:
        raise ValueError("an interval needs at least one value")
    if not all(map(math.isfinite, values)):
        raise ValueError("an interval needs finite values")
    return sorted(map(float, values))


def _mean_scores(around: Sequence[float], rng: random.Random) -> Iterator[float]:
    """(Mean of a resample) / (its standard deviation), of values around their mean."""
    n, draw = len(around), _drawer(around, rng)
    for _ in range(STUDENTISED_RESAMPLES):
        total, squares = draw()
        mean = total / n
        variance = squares / n - mean * mean
        if variance > SAME * squares / n:
            yield mean / math.sqrt(variance)
        else:
            yield math.copysign(math.inf, mean)


def _ratio_scores(rows: Sequence[tuple[float, float]], rng: random.Random) -> Iterator[float]:
    """(Ratio of a resample - ratio) / (its standard error), from (a - ratio b, b) of each example."""
    rests, sizes = zip(*rows, strict=True)
    products = ((rests, rests), (rests, sizes), (sizes, sizes))
    columns = (rests, sizes, *(tuple(map(operator.mul, *pair)) for pair in products))
    places = range(len(rows))
    for _ in range(STUDENTISED_RESAMPLES):
        drawn = operator.itemgetter(*rng.choices(places, k=len(rows)))
        rest, size, square, cross, size_square = (math.fsum(drawn(column)) for column in columns)
        shift = rest / size if size else 0.0
        squares = square - 2 * shift * cross + shift * shift * size_square
        yield rest / math.sqrt(squares) if squares > SAME * square else math.copysign(math.inf, rest)


def _ends(scores: Iterable[float], confidence: float) -> tuple[float, float]:
    """Quantiles of studentised values. Infinite ones have no mean, so these are not interpolated."""
    ordered = sorted(scores)
    outside = math.floor((1 - confidence) / 2 * (len(ordered) - 1))
    return ordered[outside], ordered[len(ordered) - 1 - outside]


def _drawer(values: Sequence[float], rng: random.Random) -> Callable[[], tuple[float, float]]:
    """A function that draws a resample of the sorted values: its sum, and the sum of its squares."""
    n = len(values)
    counts = Counter(values)
    if len(counts) > MULTINOMIAL_VALUES:

        def choose() -> tuple[float, float]:
            drawn = rng.choices(values, k=n)
            return math.fsum(drawn), math.fsum(map(operator.mul, drawn, drawn))

        return choose

    def draw() -> tuple[float, float]:
        terms, left, weight = [], n, n
        for value, count in counts.items():
            drawn = left if count == weight else binomial_draw(rng, left, count / weight)
            terms.append((value, drawn))
            left, weight = left - drawn, weight - count
        if any(drawn == n for _, drawn in terms):
            return math.fsum(value * drawn for value, drawn in terms), 0.0
        return (
            math.fsum(value * drawn for value, drawn in terms),
            math.fsum(value * value * drawn for value, drawn in terms),
        )

    return draw
