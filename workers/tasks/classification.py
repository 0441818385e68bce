"""Image classification, and the default of every task.

`Task` is what workers do; another task overrides the methods that differ. The service knows a task by its
`FACTS` (`service/catalog/tasks.py`).
"""

from __future__ import annotations

from typing import Any

from assay.workers.evaluation.engine.attacks import ClassifierAttack
from assay.workers.evaluation.engine.shard import Evaluation

__all__ = ["classification"]

FACTS = {
    "validation": True,
    "labelled": True,
    "example": {
        "model": "vit",
        "data": "digits",
        "recipe": "small_vit",
        "model_params": {"image_size": 32, "patch_size": 8, "width": 48, "depth": 2, "heads": 3},
        "recipe_params": {"epochs": 5},
    },
}


class Task:
    """What workers do for the data of a task: the methods of image classification."""

    def attack(self, made: Any) -> Evaluation:
        """The evaluation that runs what an attack component of this task returns."""
        return ClassifierAttack(made)


def classification() -> Task:
    """Image classification: a class for every image."""
    return Task()
