"""Paired differences of metrics between two jobs, over the common examples of one evaluation.

Two accuracies on the same test set are not independent, so overlapping intervals say little about their
difference. The tests here pair the examples: McNemar's exact test for right and wrong, and a bootstrap over
examples for the interval of a difference; where a metric is no mean over examples, the bootstrap is the test
too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from assay.service.contract.results import Answer
from assay.service.metrics.intervals import PairedDifference, mcnemar, paired_bootstrap

Rows = Mapping[str, Sequence[Any]]
"""Outcome columns by name, each (n, ...): a row is an example."""

Reported = tuple[float | None, float | None]
"""The values of a metric of both jobs, each over all its own examples."""

# Tolerance between a reported value and that of the rows.
TOLERANCE = 1e-9


class PairedTest(Answer):
    """McNemar's exact test on the n common examples.

    `b` counts the examples that only the first job gets right, `c` those of only the second.
    """

    name: Literal["mcnemar"] = "mcnemar"
    p_value: float
    b: int
    c: int
    n: int


class PairedBootstrap(Answer):
    """A bootstrap test over the n common images, for metrics that are no mean over examples.

    `p_value` is the achieved significance level of "no difference", from so many resamples.
    """

    name: Literal["paired_bootstrap"] = "paired_bootstrap"
    p_value: float
    n: int
    resamples: int


@dataclass(frozen=True)
class Difference:
    """The second job's metric minus the first one's over the common examples, with its 95 % interval."""

    value: float
    low: float
    high: float
    test: PairedTest | PairedBootstrap


class Pair:
    """The rows of two jobs, and their common examples.

    Attributes:
        evaluation: Its name, a part of the draws' keys.
        columns: Those of both jobs, in any order of the examples.
        rows: Of both jobs, the row of each example.
        ids: The common examples, sorted.
        sizes: How many examples each job has.
    """

    def __init__(self, evaluation: str, first: Rows, second: Rows) -> None:
        self.evaluation = evaluation
        self.columns = (first, second)
        self.rows = (_places(first), _places(second))
        self.ids = sorted(self.rows[0].keys() & self.rows[1].keys())
        self.sizes = (len(self.rows[0]), len(self.rows[1]))

    @property
    def seed(self) -> str:
        """Key of the draws of a bootstrap over whole examples."""
        return f"compare/{self.evaluation}"

    def common(self, side: int, name: str) -> list[Any]:
        """A column of the first (0) or the second job (1) over the common examples."""
        column, rows = self.columns[side][name], self.rows[side]
        return [column[rows[example]] for example in self.ids]

    def bootstrap(self, found: PairedDifference, resamples: int) -> Difference:
        """A difference with its bootstrap test."""
        value, low, high, p_value = found
        test = PairedBootstrap(p_value=p_value, n=len(self.ids), resamples=resamples)
        return Difference(value, low, high, test)


class PairedMetrics(Protocol):
    """The differences of the metrics of a pair. Shared intermediate results are computed once."""

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """The difference of a metric, second job minus first.

        Args:
            metric: Its name.
            reported: Its values in the jobs' results.

        Returns:
            None where the rows do not give this metric, or give another value than reported.
        """
        ...


class PairedShares:
    """Metrics that are shares of true entries of a column.

    Args:
        pair: The rows of both.
        columns: Metric to column.
    """

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
        first, second = (list(map(int, self._pair.common(side, name))) for side in (0, 1))
        found = paired_bootstrap(second, first, seed=f"compare/{metric}/{self._pair.evaluation}")
        pairs = list(zip(first, second, strict=True))
        b, c = sum(one > other for one, other in pairs), sum(other > one for one, other in pairs)
        test = PairedTest(p_value=mcnemar(b, c), b=b, c=c, n=len(pairs))
        return Difference(found.difference, found.low, found.high, test)


def _places(columns: Rows) -> dict[str, int]:
    return {example: row for row, example in enumerate(columns.get("id", ()))}
