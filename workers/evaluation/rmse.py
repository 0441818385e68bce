"""Errors of a regression.

Tan et al. 2021, "Time series extrinsic regression", Data Mining and Knowledge Discovery 35, whose archive is
ranked by it: the square root of the mean of (prediction - target)^2, in the target's unit.

    RMSE = sqrt(1/n sum_i (prediction_i - target_i)^2)
"""

from __future__ import annotations

import functools

from assay.workers.evaluation.engine.series import SquaredErrors, squared_errors, standardised_rows
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["rmse"]

TASKS = ("series_regression",)
TABLE = "regression"
PAPER = "Tan et al. 2021, Time series extrinsic regression"
PASSES = ("1", "0")


def rmse() -> Evaluation:
    """Root mean square and mean absolute error of a regression on unperturbed time series."""
    return _Errors()


class _Errors:
    def measure(self, shard: Shard) -> SquaredErrors:
        """One row per series."""
        return squared_errors(shard, functools.partial(standardised_rows, shard))
