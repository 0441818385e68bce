"""Errors of a regression with intervals, and the paired difference of two models.

RMSE = sqrt(mean of (prediction - target)^2) and MAE = mean of |prediction - target|, both in the target's
unit. The ends of the RMSE's interval are the roots of the ends for the mean squared error. Two models are
compared example by example, the RMSE by each example's influence on it (`paired_estimates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.estimates import mean, measured, undefined
from assay.service.metrics.statistics.intervals import Bounds
from assay.service.metrics.statistics.paired_estimates import Estimator, PairedEstimates, root_of
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["Regression"]

UNDEFINED = "the model gave a number that is not finite for some example, which has no error"
ROOTS = {"rmse": "squared_error", "clean_rmse": "clean_squared_error"}  # Metric to column.


class Regression(OutcomeTable):
    """A row is an example with its target; one without a finite prediction has no error."""

    name = "regression"
    columns = columns_of(
        "id target prediction squared_error forward backward", optional="clean_squared_error"
    )
    units: ClassVar[Units] = {"rmse": "number", "mae": "number", "clean_rmse": "number"}
    undefined: ClassVar[Reasons] = dict.fromkeys(units, UNDEFINED)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """`rmse`, `mae` in the target's unit; under a perturbation also `clean_rmse` of the same examples."""
        del context
        metrics = {"rmse": _root(rows["squared_error"], "rmse"), "mae": _absolute(rows["squared_error"])}
        if "clean_squared_error" in rows:
            metrics["clean_rmse"] = _root(rows["clean_squared_error"], "clean_rmse")
        return Summary(metrics)

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of the absolute errors, linearised tests of the root errors."""
        roots = {metric: Estimator(_squares(name), root_of) for metric, name in ROOTS.items()}
        return PairedEstimates(pair, {"mae": Estimator(_distances), **roots})


def _squares(name: str) -> Callable[[Rows], Sequence[float | None]]:
    return lambda rows: rows.get(name, ())


def _distances(rows: Rows) -> list[float | None]:
    return [None if square is None else math.sqrt(square) for square in rows["squared_error"]]


def _root(squares: Sequence[float | None], name: str) -> Metric:
    known = [square for square in squares if square is not None]
    if not known or len(known) < len(squares):
        return undefined(len(squares), higher_is_better=False)
    found = mean(known, name, higher_is_better=False)
    bounds = Bounds(None, None, found.ci_method)
    if found.ci_low is not None and found.ci_high is not None:
        bounds = Bounds(math.sqrt(max(found.ci_low, 0.0)), math.sqrt(found.ci_high), found.ci_method)
    return measured(root_of(known).value, bounds, len(known), higher_is_better=False)


def _absolute(squares: Sequence[float | None]) -> Metric:
    known = [math.sqrt(square) for square in squares if square is not None]
    if not known or len(known) < len(squares):
        return undefined(len(squares), higher_is_better=False)
    return mean(known, "mae", lowest=0.0, higher_is_better=False)
