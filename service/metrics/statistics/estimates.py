"""Metrics with 95 % intervals, as in the results.

Intervals are from `intervals.py`, `score_intervals.py` and `jackknife.py`; `docs/statistics.md` says which
metric has which interval. R, the number of resamples, is at most 2000; it shrinks for many examples, so that
a merge takes seconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from statistics import quantiles

from assay.service.contract.results import Metric
from assay.service.metrics.statistics.intervals import (
    MIN_EXAMPLES,
    NO_BOUNDS,
    NO_SPREAD,
    TOO_FEW,
    Bounds,
    mean_bounds,
    median_bounds,
    wilson,
)
from assay.service.metrics.statistics.jackknife import jackknife_variance, logit_bounds
from assay.service.metrics.statistics.score_intervals import effective_wilson

MAX_RESAMPLES = 2000
MIN_RESAMPLES = 200
GROUPS = 100  # Groups of examples that the jackknife leaves out, one at a time.

Interval = tuple[float, float]


def resamples(cost: int, budget: int) -> int:
    """R for resamples of this cost: 2000, or fewer, but at least 200, where they would exceed the budget."""
    return min(MAX_RESAMPLES, max(MIN_RESAMPLES, budget // cost))


@lru_cache(maxsize=8)
def groups(n: int) -> tuple[frozenset[int], ...]:
    """The places of n examples in at most `GROUPS` groups, of sizes that differ by at most 1."""
    # Up to `GROUPS` examples each is a group. More are dealt out in a fixed random order: ids are often
    # sorted by class, or go round the classes, and groups of like examples would show another spread.
    places = list(range(n))
    if n > GROUPS:
        random.Random(f"assay/groups/{n}").shuffle(places)
    return tuple(frozenset(places[first::GROUPS]) for first in range(min(n, GROUPS)))


def measured(value: float | None, bounds: Bounds, n: int, *, higher_is_better: bool = True) -> Metric:
    """A metric with its interval; no interval without a value."""
    low, high, method = bounds if value is not None else NO_BOUNDS
    return Metric(
        value=value, n=n, ci_low=low, ci_high=high, ci_method=method, higher_is_better=higher_is_better
    )


def percentiles(sampled: Sequence[float]) -> Interval:
    """The ends of the central 95 % of at least two resampled values."""
    cuts = quantiles(sampled, n=40, method="inclusive")  # The first and last of 39 cuts leave 2.5 % outside.
    return cuts[0], cuts[-1]


def bootstrapped(
    value: float | None, interval: Interval | None, n: int, *, higher_is_better: bool = True
) -> Metric:
    """A metric with its percentile bootstrap interval; None of few examples, or of equal resamples."""
    bounds = TOO_FEW if n < MIN_EXAMPLES else NO_SPREAD
    if interval is not None:
        bounds = Bounds(*interval, "bootstrap")
    return measured(value, bounds, n, higher_is_better=higher_is_better)


def undefined(n: int, *, higher_is_better: bool = True) -> Metric:
    """A metric without a value."""
    return measured(None, NO_BOUNDS, n, higher_is_better=higher_is_better)


def jackknifed(value: float | None, left_out: Sequence[float | None], n: int) -> Metric:
    """A share in [0, 1] that is no mean, jackknifed by `left_out`, values without each of `groups(n)`."""
    known = [one for one in left_out if one is not None]
    bounds = TOO_FEW
    if value is not None and n >= MIN_EXAMPLES and len(known) > 1:
        bounds = logit_bounds(value, [jackknife_variance(known)])
    return measured(value, bounds, n)


def proportion(successes: int, n: int, *, higher_is_better: bool) -> Metric:
    """A share of n examples with its Wilson 95 % interval; without examples, None."""
    low, high = wilson(successes, n)
    return Metric(
        value=successes / n if n else None,
        n=n,
        ci_low=low if n else None,
        ci_high=high if n else None,
        ci_method="wilson",
        higher_is_better=higher_is_better,
    )


def bounded_mean(values: Sequence[float], *, highest: float = 1.0, higher_is_better: bool = True) -> Metric:
    """A mean over examples of values in [0, highest] with its score interval; without values, None."""
    if not values:
        return undefined(0, higher_is_better=higher_is_better)
    low, high = effective_wilson(values, highest=highest)
    return Metric(
        value=math.fsum(values) / len(values),
        n=len(values),
        ci_low=low,
        ci_high=high,
        ci_method="wilson" if set(values) <= {0.0, highest} else "wilson_effective",
        higher_is_better=higher_is_better,
    )


def clustered_share(parts: Sequence[int], wholes: Sequence[int], *, higher_is_better: bool) -> Metric:
    """A share of units that come in clusters, such as words in documents, with its score interval.

    The effective number of units follows from the variance between clusters (Korn and Graubard 1998), and is
    at most their number: units of a cluster are not taken for less alike than independent ones. `n` counts
    units; without units, None.
    """
    n, clusters = sum(wholes), len(wholes)
    found = proportion(sum(parts), n, higher_is_better=higher_is_better)
    share = found.value
    if share is None or clusters < 2 or not 0 < share < 1:
        return found
    squares = math.fsum((part - share * whole) ** 2 for part, whole in zip(parts, wholes, strict=True))
    effect = max(1.0, squares * clusters / ((clusters - 1) * n * share * (1 - share)))
    low, high = wilson(sum(parts) / effect, n / effect)
    method = "wilson" if effect == 1.0 else "wilson_effective"
    return found.model_copy(update={"ci_low": low, "ci_high": high, "ci_method": method})


def mean(
    values: Sequence[float], name: str, *, lowest: float = -math.inf, higher_is_better: bool = True
) -> Metric:
    """A mean over examples of finite values without known limits, with its interval; without values, None.

    The name is the key of the draws. No value can be below `lowest`, and the interval ends there.
    """
    if not values:
        return undefined(0, higher_is_better=higher_is_better)
    bounds = mean_bounds(values, seed=f"metric/{name.removeprefix('clean_')}")
    if bounds.low is not None:
        bounds = bounds._replace(low=max(lowest, bounds.low))
    return measured(math.fsum(values) / len(values), bounds, len(values), higher_is_better=higher_is_better)


def median(values: Sequence[float], *, higher_is_better: bool = True) -> Metric:
    """A median over examples, with its interval; without values, None."""
    if not values:
        return undefined(0, higher_is_better=higher_is_better)
    ordered, n = sorted(values), len(values)
    middle = ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2
    return measured(middle, median_bounds(values), n, higher_is_better=higher_is_better)
