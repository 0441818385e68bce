"""Errors of a regression with intervals, and the paired difference of two models.

RMSE = sqrt(mean of (prediction - target)^2) and MAE = mean of |prediction - target|, both in the target's
unit. Intervals are bootstraps over examples (`intervals.py`); the ends of that of the RMSE are the roots of
the ends for the mean squared error. Two models are compared example by example: each draw has both models'
errors of an example.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.estimates import bootstrapped, mean, resamples
from assay.service.metrics.intervals import PairedDifference, difference_from, paired_bootstrap
from assay.service.metrics.paired import Difference, Pair, PairedMetrics, Reported, Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

UNDEFINED = "the model gave a number that is not finite for some example, which has no error"
# Metric to column.
ROOTS = {"rmse": "squared_error", "clean_rmse": "clean_squared_error"}


class Regression(OutcomeTable):
    """A row is an example with its target; one without a finite prediction has no error."""

    name = "regression"
    columns = columns_of(
        "id target prediction squared_error forward backward", optional="clean_squared_error"
    )
    units: ClassVar[Units] = {"rmse": "number", "mae": "number", "clean_rmse": "number"}
    undefined: ClassVar[Reasons] = dict.fromkeys(units, UNDEFINED)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Errors in the target's unit; lower is better.

        Returns:
            `rmse` and `mae`; under a perturbation also `clean_rmse`, that of the same examples without it.
        """
        del context
        metrics = {"rmse": _root(rows["squared_error"], "rmse"), "mae": _absolute(rows["squared_error"])}
        if "clean_squared_error" in rows:
            metrics["clean_rmse"] = _root(rows["clean_squared_error"], "clean_rmse")
        return Summary(metrics)

    def paired(self, pair: Pair) -> PairedMetrics:
        """A bootstrap over the common examples."""
        return PairedErrors(pair)


class PairedErrors:
    """Two models' errors of the same examples."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`; of the errors over the common examples."""
        pair, name = self._pair, "squared_error" if metric == "mae" else ROOTS.get(metric, "")
        if not pair.ids:
            return None
        error = _mean_absolute if metric == "mae" else _root_mean
        for rows, value in zip(pair.columns, reported, strict=True):
            found = error(rows[name]) if name in rows and None not in rows[name] else None
            if found is None or value is None or not math.isclose(found, value, rel_tol=1e-9):
                return None
        first, second = (pair.common(side, name) for side in (0, 1))
        count = resamples(len(pair.ids))
        if metric == "mae":
            one, other = ([math.sqrt(square) for square in side] for side in (first, second))
            return pair.bootstrap(paired_bootstrap(other, one, seed=pair.seed, resamples=count), count)
        return pair.bootstrap(_paired_roots(first, second, error, pair.seed, count), count)


def _paired_roots(
    first: Sequence[float],
    second: Sequence[float],
    error: Callable[[Sequence[float]], float],
    seed: str,
    count: int,
) -> PairedDifference:
    """The second model's error less the first one's; the same pairs in any order give the same bits."""
    pairs, draws = sorted(zip(first, second, strict=True)), random.Random(f"assay/bootstrap/{seed}")

    def difference(some: Sequence[tuple[float, float]]) -> float:
        return error([pair[1] for pair in some]) - error([pair[0] for pair in some])

    sampled = sorted(difference(draws.choices(pairs, k=len(pairs))) for _ in range(count))
    return difference_from(difference(pairs), sampled)


def _root_mean(squares: Sequence[float]) -> float:
    return math.sqrt(math.fsum(squares) / len(squares))


def _mean_absolute(squares: Sequence[float]) -> float:
    return math.fsum(map(math.sqrt, squares)) / len(squares)


def _root(squares: Sequence[float | None], name: str) -> Metric:
    known = [square for square in squares if square is not None]
    if not known or len(known) < len(squares):
        return bootstrapped(None, None, len(squares), higher_is_better=False)
    found = mean(known, name, higher_is_better=False)
    low, high = (math.sqrt(end or 0.0) for end in (found.ci_low, found.ci_high))
    return bootstrapped(_root_mean(known), (low, high), len(known), higher_is_better=False)


def _absolute(squares: Sequence[float | None]) -> Metric:
    known = [math.sqrt(square) for square in squares if square is not None]
    if not known or len(known) < len(squares):
        return bootstrapped(None, None, len(squares), higher_is_better=False)
    return mean(known, "mae", higher_is_better=False)
