"""Regression of time series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from assay.workers.evaluation.engine.loader import Images
from assay.workers.evaluation.engine.outcomes import Outcomes
from assay.workers.evaluation.engine.series import compare_errors
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.tasks.classification import Task
from assay.workers.tasks.series import SeriesTask

if TYPE_CHECKING:
    from assay.workers.training.losses import TrainingLoss

__all__ = ["series_regression"]

FACTS = {
    "noun": "series",
    "protocols": {"pixel": "series"},
    "final": {"name": "rmse"},
    "sizes": {"channels": "features", "length": "steps"},
    "example": {
        "model": "series_regressor",
        "data": "pulses",
        "recipe": "small_series_regression",
        "model_params": {"width": 32, "length": 64},
        "recipe_params": {"epochs": 5},
    },
}


class _SeriesRegressionTask(SeriesTask):
    def loss(self) -> TrainingLoss:
        from assay.workers.training.losses import TargetLoss  # trainings alone

        return TargetLoss()

    def compare(self, shard: Shard, before: Images, after: Images, norms: Mapping[str, Tensor]) -> Outcomes:
        return compare_errors(shard, before, after)


def series_regression() -> Task:
    """Regression of time series: a number for every series."""
    return _SeriesRegressionTask()
