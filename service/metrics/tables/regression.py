"""Errors of a regression with intervals, and the paired difference of two models.

RMSE = sqrt(mean of (prediction - target)^2) and MAE = mean of |prediction - target|, both in the target's
unit. The ends of the RMSE's interval are the roots of the ends for the mean squared error. Two models are
compared example by example, the RMSE by each example's influence on it (`paired_estimates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.analyses.analysis_estimates import mean
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.paired_estimates import Estimator, PairedEstimates, column_of, root_of
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
        metrics = {
            "rmse": _root(rows["squared_error"], "rmse"),
            "mae": mean(_distances(rows), "mae", lowest=0.0),
        }
        if "clean_squared_error" in rows:
            metrics["clean_rmse"] = _root(rows["clean_squared_error"], "clean_rmse")
        return Summary(metrics)

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of the absolute errors, linearised tests of the root errors."""
        roots = {metric: Estimator(column_of(name), root_of) for metric, name in ROOTS.items()}
        return PairedEstimates(pair, {"mae": Estimator(_distances), **roots})


def _distances(rows: Rows) -> list[float | None]:
    return [None if square is None else math.sqrt(square) for square in rows["squared_error"]]


def _root(squares: Sequence[float | None], name: str) -> Metric:
    found = mean(squares, name)
    ends = {"value": found.value, "ci_low": found.ci_low and max(found.ci_low, 0.0), "ci_high": found.ci_high}
    return found.model_copy(update={key: end and math.sqrt(end) for key, end in ends.items()})
