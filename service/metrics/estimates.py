"""Metrics with 95 % intervals, as in the results.

Intervals are those of `intervals.py`. R, the number of resamples, is 2000; it shrinks for many examples, so
that a merge takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import quantiles

from assay.service.contract.results import Metric
from assay.service.metrics.intervals import Estimate, bootstrap_mean, bootstrap_median, wilson

MAX_RESAMPLES = 2000
MIN_RESAMPLES = 200
# A bootstrap of a mean draws n values R times; beyond this many draws R shrinks.
DRAWS = 20_000_000

Interval = tuple[float, float]


def resamples(cost: int, budget: int = DRAWS, *, at_least: int = MIN_RESAMPLES) -> int:
    """R for resamples of this cost: 2000, or fewer where they would exceed the budget.

    Args:
        cost: Of one resample, in the unit of the budget.
        budget: Of all of them; R shrinks so that they keep within it.
        at_least: Minimum of R, at any cost.
    """
    return min(MAX_RESAMPLES, max(at_least, budget // cost))


def percentiles(sampled: Sequence[float]) -> Interval:
    """The ends of the central 95 % of at least two resampled values."""
    # Of 39 cuts the first and the last leave 2.5 % outside.
    cuts = quantiles(sampled, n=40, method="inclusive")
    return cuts[0], cuts[-1]


def bootstrapped(
    value: float | None, interval: Interval | None, n: int, *, higher_is_better: bool = True
) -> Metric:
    """A metric with its bootstrap interval; no interval without a value."""
    low, high = interval if value is not None and interval is not None else (None, None)
    return Metric(
        value=value, n=n, ci_low=low, ci_high=high, ci_method="bootstrap", higher_is_better=higher_is_better
    )


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


def mean(values: Sequence[float], name: str, *, higher_is_better: bool = True) -> Metric:
    """A mean over examples with its bootstrap interval; without values, None.

    Args:
        values: One per example, finite.
        name: Key of the draws.
        higher_is_better: Whether more is better.
    """
    return _estimated(_mean, values, name, higher_is_better)


def median(values: Sequence[float], name: str) -> Metric:
    """A median over examples, higher is better; as `mean`."""
    return _estimated(bootstrap_median, values, name, True)


def _estimated(
    estimator: Callable[..., Estimate], values: Sequence[float], name: str, higher_is_better: bool
) -> Metric:
    found = estimator(values, seed=f"metric/{name}") if values else None
    value, interval = (found.value, (found.low, found.high)) if found else (None, None)
    return bootstrapped(value, interval, len(values), higher_is_better=higher_is_better)


def _mean(values: Sequence[float], *, seed: str) -> Estimate:
    return bootstrap_mean(values, seed=seed, resamples=resamples(len(values)))
