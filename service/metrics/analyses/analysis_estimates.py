"""Values and intervals shared by analyses."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from assay.service.contract.results import Metric
from assay.service.metrics.estimates import bootstrapped
from assay.service.metrics.intervals import Estimate, bootstrap_mean, bootstrap_median

RESAMPLES = 1000
GROUPS = 100
MIN_TO_GROUP = 500


def exact(value: float) -> Metric:
    """An exact count; less is better."""
    return Metric(value=value, n=1, ci_low=value, ci_high=value, ci_method="exact", higher_is_better=False)


def undefined(n: int, *, higher_is_better: bool = False) -> Metric:
    """A metric without a value."""
    return bootstrapped(None, None, n, higher_is_better=higher_is_better)


def mean(values: Sequence[float | None], name: str, *, higher_is_better: bool = False) -> Metric:
    """The mean over examples with its bootstrap interval; without a value where one example has none.

    For many examples, means over random groups are resampled: an analysis has a hundred such means.
    """
    known = _known(values)
    if known is None:
        return undefined(len(values), higher_is_better=higher_is_better)
    value, groups = math.fsum(known) / len(known), _grouped(known, name)
    centre = value - math.fsum(groups) / len(groups)  # groups differ in size by one
    found = bootstrap_mean(groups, seed=f"metric/{name}", resamples=RESAMPLES)
    interval = found._replace(value=value, low=found.low + centre, high=found.high + centre)
    return _metric(interval, len(known), higher_is_better=higher_is_better)


def median(values: Sequence[float | None], name: str) -> Metric:
    """The median over repeats with its bootstrap interval; less is better."""
    known = _known(values)
    if known is None:
        return undefined(len(values))
    found = bootstrap_median(known, seed=f"metric/{name}", resamples=RESAMPLES)
    return _metric(found, len(known), higher_is_better=False)


def _known(values: Sequence[float | None]) -> list[float] | None:
    """The values, or None if one is missing or the list is empty."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return known if known and len(known) == len(values) else None


def _grouped(values: Sequence[float], name: str) -> list[float]:
    """The values, or for many the means of random groups, independent of the values' order."""
    if len(values) < MIN_TO_GROUP:
        return list(values)
    shuffled = sorted(values)
    random.Random(f"groups/{name}").shuffle(shuffled)
    parts = [shuffled[group::GROUPS] for group in range(GROUPS)]
    return [math.fsum(part) / len(part) for part in parts]


def _metric(found: Estimate, n: int, *, higher_is_better: bool) -> Metric:
    return bootstrapped(found.value, (found.low, found.high), n, higher_is_better=higher_is_better)
