"""Paired differences of metrics between two jobs, over the common examples of an evaluation.

Two accuracies on the same test set are not independent, so overlapping intervals say little about their
difference. The tests here pair the examples; `docs/statistics.md` says which metric has which test and
interval. Metrics that are no share of a column are paired by `paired_estimates.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from assay.service.contract.results import Answer, EvaluationResult, IntervalMethod
from assay.service.metrics.statistics.intervals import MedianDifference
from assay.service.metrics.statistics.jackknife import TestedDifference
from assay.service.metrics.statistics.paired_tests import mcnemar
from assay.service.metrics.statistics.tango import tango

Rows = Mapping[str, Sequence[Any]]
"""Outcome columns by name, each (n, ...): a row is an example."""

Reported = tuple[float | None, float | None]
"""The values of a metric of both jobs, each over all its own examples."""

TOLERANCE = 1e-9  # Tolerance between a reported value and the value of the rows.


class _Test(Answer):
    p_value: float
    adjusted_p_value: float | None = None
    n: int


class PairedTest(_Test):
    """McNemar's exact test on n common examples; `b`: only the first job is right, `c`: only the second."""

    name: Literal["mcnemar"] = "mcnemar"
    b: int
    c: int


class SignFlipTest(_Test):
    """The randomisation test of a mean of paired differences: the sign of each is flipped.

    `moved` counts the examples with a difference. Up to 12 of these the p is exact; of more, the signs of the
    12 largest are counted, and the others are normal.
    """

    name: Literal["sign_flip"] = "sign_flip"
    moved: int


class LinearisedTest(_Test):
    """The sign flip of influences, for metrics that are smooth functions of sums over examples.

    The influence of an example in the second job less its influence in the first, as if the jobs were alike.
    `moved` counts the examples with different outcomes.
    """

    name: Literal["linearised"] = "linearised"
    moved: int


class JackknifeTest(_Test):
    """Student's t with the jackknife's variance over the n common examples or images.

    For metrics that are no mean over examples, medians apart. `df` are its degrees of freedom.
    """

    name: Literal["jackknife_t"] = "jackknife_t"
    df: float


class MedianTest(_Test):
    """The normal test of the difference of two medians, Bonett and Price 2020.

    `counted` are the examples of either median, of the n common ones: those that the attack broke.
    """

    name: Literal["price_bonett"] = "price_bonett"
    counted: tuple[int, int]


AnyPairedTest = PairedTest | SignFlipTest | LinearisedTest | JackknifeTest | MedianTest


@dataclass(frozen=True)
class Difference:
    """The second job's metric minus the first one's over the common examples, with its 95 % interval.

    The ends are None where the method says that the examples are too few or do not differ. `test` is None
    where the metric is no mean and the examples are so few, or do not differ: its p would mean nothing.
    """

    value: float
    low: float | None
    high: float | None
    test: AnyPairedTest | None
    method: IntervalMethod


class Pair:
    """The rows of two jobs, in any order of the examples, and their common examples, `ids`, sorted.

    The evaluation's name is a part of the keys of draws; the rows of results of both, where known, are there
    for their parameters and protocol. `rows` has the row of each example, `sizes` the numbers of examples.
    """

    def __init__(
        self,
        evaluation: str,
        first: Rows,
        second: Rows,
        results: tuple[EvaluationResult, EvaluationResult] | None = None,
    ) -> None:
        self.evaluation = evaluation
        self.results = results
        self.columns = (first, second)
        self.rows = (_places(first), _places(second))
        self.ids = sorted(self.rows[0].keys() & self.rows[1].keys())
        self.sizes = (len(self.rows[0]), len(self.rows[1]))

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of the evaluation, the same in both jobs; none where they are not known."""
        return self.results[0].params if self.results else {}

    @property
    def protocol(self) -> str:
        """That of both runs; "pixel" where it is not known."""
        return self.results[0].protocol if self.results else "pixel"

    @property
    def seed(self) -> str:
        """Key of draws."""
        return f"compare/{self.evaluation}"

    def common(self, side: int, name: str) -> list[Any]:
        """A column of the first (0) or the second job (1) over the common examples."""
        column, rows = self.columns[side][name], self.rows[side]
        return [column[rows[example]] for example in self.ids]

    def jackknife(self, found: TestedDifference) -> Difference:
        """A difference with its jackknife test, where it has one."""
        test = None
        if found.p_value is not None:
            test = JackknifeTest(p_value=found.p_value, n=len(self.ids), df=found.df)
        return Difference(found.value, found.bounds.low, found.bounds.high, test, found.bounds.method)

    def medians(self, found: MedianDifference, counted: tuple[int, int]) -> Difference:
        """A difference of medians of so many of the common examples, with its test, where it has one."""
        test = None
        if found.p_value is not None:
            test = MedianTest(p_value=found.p_value, n=len(self.ids), counted=counted)
        return Difference(found.value, found.bounds.low, found.bounds.high, test, found.bounds.method)


def agrees(found: float | None, reported: float | None) -> bool:
    """Whether a value from the rows is the reported one: a metric may be of a subset of the rows."""
    if found is None or reported is None:
        return False
    return math.isclose(found, reported, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


class PairedMetrics(Protocol):
    """The differences of the metrics of a pair. Shared intermediate results are computed once."""

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """Metric of the second job minus the first; None where the rows do not give the reported value."""
        ...


class PairedShares:
    """Metrics that are shares of true entries of a column."""

    def __init__(self, pair: Pair, columns: Mapping[str, str]) -> None:
        self._pair = pair
        self._columns = columns

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`."""
        name = self._columns.get(metric)
        for columns, value in zip(self._pair.columns, reported, strict=True):
            column = columns.get(name) if name else None
            # A metric that is not the mean of this column (say, over a subset) must not be paired by it.
            if not column or value is None or abs(sum(column) / len(column) - value) > TOLERANCE:
                return None
        assert name is not None
        if not self._pair.ids:
            return None
        first, second = (self._pair.common(side, name) for side in (0, 1))
        pairs, n = list(zip(first, second, strict=True)), len(first)
        b, c = sum(one > other for one, other in pairs), sum(other > one for one, other in pairs)
        low, high = tango(c, b, n)
        test = PairedTest(p_value=mcnemar(b, c), b=b, c=c, n=n)
        return Difference((c - b) / n, low, high, test, "tango")


def _places(columns: Rows) -> dict[str, int]:
    return {example: row for row, example in enumerate(columns.get("id", ()))}
