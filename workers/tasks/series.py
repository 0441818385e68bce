"""Classification of time series."""

from __future__ import annotations

from typing import Any

from assay.workers.evaluation.engine.attacks import SeriesAttack
from assay.workers.evaluation.engine.shard import Evaluation
from assay.workers.tasks.classification import Task

__all__ = ["series"]

FACTS = {
    "noun": "series",
    # Attacks under the protocol `paper` are on standardised series too.
    "protocols": {"pixel": "series"},
    "validation": True,
    "labelled": True,
    "sizes": {"channels": "features", "length": "steps"},
    "example": {
        "model": "series_transformer",
        "data": "motions",
        "recipe": "small_series",
        "model_params": {"width": 32, "length": 48},
        "recipe_params": {"epochs": 5},
    },
}


class SeriesTask(Task):
    """What workers do for time series."""

    def attack(self, made: Any) -> Evaluation:
        """On the standardised series."""
        return SeriesAttack(made)


def series() -> Task:
    """Classification of time series: a class for every series."""
    return SeriesTask()
