"""Regression of time series."""

from __future__ import annotations

from assay.workers.tasks.classification import Task
from assay.workers.tasks.series import SeriesTask

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


def series_regression() -> Task:
    """Regression of time series: a number for every series."""
    return SeriesTask()
