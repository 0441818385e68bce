"""Paired differences of metrics that are means over examples, or functions of such means, or of all examples.

A metric t is linear where t = (1/n) sum x_i; smooth metrics are linear up to terms of order 1/n:
t_i = t + L_i, L_i the influence of example i (the infinitesimal jackknife: Efron 1982, "The Jackknife, the
Bootstrap and Other Resampling Plans", section 6.3). The paired difference of two models then is the mean of
one number per example, d_i = t_i of the second less t_i of the first. The test of a linearised metric is of
influences on models that are alike: on the metric of both models' examples together, where an example that
is the same in both has no influence, or on a ratio half-way between both. Other shares have the jackknife's
variance (`jackknife.py`): the difference without each example, or each group of examples. Medians have the
standard errors of their order statistics (`intervals.median_difference`).

Legend: n common examples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from typing import Any, NamedTuple

from assay.service.metrics.paired import (
    AnyPairedTest,
    Difference,
    LinearisedTest,
    Pair,
    PairedMetrics,
    Reported,
    Rows,
    SignFlipTest,
    agrees,
)
from assay.service.metrics.statistics.estimates import groups
from assay.service.metrics.statistics.intervals import Bounds, mean_bounds, median_difference
from assay.service.metrics.statistics.jackknife import Variance, jackknife_variance, student_difference
from assay.service.metrics.statistics.paired_tests import sign_flip
from assay.service.metrics.statistics.score_intervals import paired_score

TIE = 0.05  # An outcome counts more in the model that has fewer of them: by less than this it's a tie.

ExampleValues = Sequence[Any] | None
"""What a metric is computed from, one entry per example; None where it does not follow from the rows."""

Groups = Sequence[frozenset[int]]
"""Places of the examples to leave out, one group at a time."""


class Linear(NamedTuple):
    """A metric, and the number of each example; their mean is the metric."""

    value: float
    terms: Sequence[float]
    weights: Sequence[float] | None = None  # For a ratio of sums, how often each example counts; 1 on average


@dataclass(frozen=True)
class Estimator:
    """How a metric follows from per-example numbers."""

    examples: Callable[[Rows], ExampleValues]  # The rows' numbers, in the order of the rows
    # The metric and its terms, from these numbers; None where the metric has no value. Without `linear` the
    # numbers are the terms
    linear: Callable[[Sequence[Any]], Linear | None] | None = None
    largest: float | None = None  # Largest possible difference of a number between two models
    limit: float = math.inf  # The largest possible difference of the metric; `largest` where that is given


@dataclass(frozen=True)
class Statistic:
    """A share of all examples together that is no mean, such as an area under a curve."""

    examples: Callable[[Rows], ExampleValues]  # As for `Estimator`
    # The share, from the numbers of some examples in the order of their ids; None where it has no value
    value: Callable[[Sequence[Any]], float | None]
    # The sample of an example, from its numbers; the sizes of samples are given. None for a single sample
    stratum: Callable[[Any], Any] | None = None
    # The values without each group; by default `value` of the others
    left_out: Callable[[Sequence[Any], Groups], Sequence[float | None]] | None = None


@dataclass(frozen=True)
class Median:
    """A median over some of the examples: the jackknife's variance says nothing of it."""

    # Whether each example counts, 0 or 1, and its value, from the rows
    examples: Callable[[Rows], Sequence[tuple[int, float]] | None]

    @staticmethod
    def value(examples: Sequence[tuple[int, float]]) -> float | None:
        """The median; None where no example counts."""
        counted = [value for counts, value in examples if counts]
        return statistics.median(counted) if counted else None


AnyEstimator = Estimator | Statistic | Median


def column_of(name: str) -> Callable[[Rows], list[float] | None]:
    """Of each example its entry in a column; None where the rows lack it, or an entry."""
    return lambda rows: list(rows[name]) if name in rows and None not in rows[name] else None


class PairedEstimates:
    """Differences of metrics by their estimators."""

    def __init__(self, pair: Pair, estimators: Mapping[str, AnyEstimator]) -> None:
        self._pair = pair
        self._estimators = estimators

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`."""
        estimator, pair = self._estimators.get(metric), self._pair
        if estimator is None or not pair.ids:
            return None
        common: list[list[Any]] = []
        for rows, columns, value in zip(pair.rows, pair.columns, reported, strict=True):
            every = estimator.examples(columns)
            if not every or None in every:
                return None
            # In the order of ids, so that the order of shards changes no bit.
            if not agrees(_value(estimator, [every[rows[one]] for one in sorted(rows)]), value):
                return None
            common.append([every[rows[one]] for one in pair.ids])
        if isinstance(estimator, Statistic):
            return _jackknifed(pair, estimator, common)
        if isinstance(estimator, Median):
            return _medians(pair, common)
        return _linear(pair, metric, estimator, common)


class FirstOf:
    """The differences of the first of several parts that knows a metric."""

    def __init__(self, *parts: PairedMetrics) -> None:
        self._parts = parts

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`."""
        found = (part.difference(metric, reported) for part in self._parts)
        return next((one for one in found if one is not None), None)


def mean_of(values: Sequence[float]) -> Linear:
    """A mean."""
    return Linear(math.fsum(values) / len(values), values)


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Linear | None:
    """A ratio of sums, sum a / sum b, from (a, b) of each example; None without any b."""
    whole = math.fsum(b for _, b in pairs)
    if not whole:
        return None
    value, n = math.fsum(a for a, _ in pairs) / whole, len(pairs)
    terms = [value + (a - value * b) * n / whole for a, b in pairs]
    return Linear(value, terms, [b * n / whole for _, b in pairs])


def root_of(squares: Sequence[float]) -> Linear:
    """The root of a mean."""
    square = math.fsum(squares) / len(squares)
    value = math.sqrt(square)
    return Linear(value, [value + (one - square) / (2 * value) if value else 0.0 for one in squares])


def _value(estimator: AnyEstimator, examples: Sequence[Any]) -> float | None:
    if not isinstance(estimator, Estimator):
        return estimator.value(examples)
    found = (estimator.linear or mean_of)(examples)
    return None if found is None else found.value


def _linear(pair: Pair, metric: str, estimator: Estimator, common: Sequence[list[Any]]) -> Difference | None:
    linear = estimator.linear or mean_of
    first, second = map(linear, common)
    if first is None or second is None:
        return None
    terms = [b - a for a, b in zip(first.terms, second.terms, strict=True)]
    n, moved = len(terms), sum(a != b for a, b in zip(*common, strict=True))
    if estimator.largest is None:
        bounds = _within(mean_bounds(terms, seed=f"{pair.seed}/{metric}"), estimator.limit)
    else:
        heaviest = max(*(first.weights or [1]), *(second.weights or [1]))
        shares = [one / heaviest for one in _alike(first, second)]
        low, high = paired_score(shares, largest=estimator.largest, size=n / heaviest)
        bounds = _within(Bounds(low, high, "tango_effective"), estimator.largest)
    test: AnyPairedTest
    if estimator.linear is None:
        test = SignFlipTest(p_value=sign_flip(terms), n=n, moved=moved)
    else:
        flipped, tie = _alike(first, second), TIE if estimator.largest else 0.0
        if first.weights is None and (together := linear([*common[0], *common[1]])) is not None:
            flipped = list(map(sub, together.terms[n:], together.terms[:n]))
        test = LinearisedTest(p_value=sign_flip(flipped, tie=tie), n=n, moved=moved)
    return Difference(second.value - first.value, bounds.low, bounds.high, test, bounds.method)


def _alike(first: Linear, second: Linear) -> list[float]:
    """The differences of the terms; of ratios as if both were the same, and half-way between them."""
    # What an example that counts more often adds is then no part of the difference, and the sum is as before.
    differences = list(map(sub, second.terms, first.terms))
    if first.weights is None or second.weights is None:
        return differences
    apart, pairs = second.value - first.value, zip(first.weights, second.weights, strict=True)
    return [one + apart * ((a + b) / 2 - 1) for one, (a, b) in zip(differences, pairs, strict=True)]


def _within(bounds: Bounds, limit: float) -> Bounds:
    """The ends, at most the limit away from 0."""
    if bounds.low is None or bounds.high is None:
        return bounds
    return bounds._replace(low=max(-limit, bounds.low), high=min(limit, bounds.high))


def _jackknifed(pair: Pair, statistic: Statistic, common: Sequence[list[Any]]) -> Difference | None:
    first, second = map(statistic.value, common)
    if first is None or second is None:
        return None
    strata: dict[Any, list[int]] = {}
    for place, one in enumerate(common[0]):
        strata.setdefault(statistic.stratum and statistic.stratum(one), []).append(place)
    variances: list[Variance] = []
    for places in strata.values():
        outs = [frozenset(places[row] for row in group) for group in groups(len(places))]
        known: list[float] = []
        if len(places) > 1:
            sides = [(statistic.left_out or _left_out(statistic.value))(side, outs) for side in common]
            known = [b - a for a, b in zip(*sides, strict=True) if a is not None and b is not None]
        if len(known) < 2:
            # One example of a sample says nothing of its variance.
            return pair.jackknife(student_difference(second - first, [], len(pair.ids)))
        variances.append(jackknife_variance(known))
    return pair.jackknife(student_difference(second - first, variances, len(pair.ids)))


def _left_out(
    value: Callable[[Sequence[Any]], float | None],
) -> Callable[[Sequence[Any], Groups], list[float | None]]:
    def without(examples: Sequence[Any], outs: Groups) -> list[float | None]:
        return [value([one for place, one in enumerate(examples) if place not in out]) for out in outs]

    return without


def _medians(pair: Pair, common: Sequence[list[tuple[int, float]]]) -> Difference | None:
    first, second = (
        {one: value for one, (counts, value) in zip(pair.ids, side, strict=True) if counts} for side in common
    )
    if not first or not second:
        return None
    return pair.medians(median_difference(first, second), (len(first), len(second)))
