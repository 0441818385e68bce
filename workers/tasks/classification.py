"""Image classification, and the default of every task.

`Task` is what workers do; another task overrides the methods that differ. The service knows a task by its
`FACTS` (`service/catalog/tasks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from assay.workers.data.formats.dataset import DataSet, ExampleSet, ImageSet, Levels, stored_images
from assay.workers.evaluation.engine.attacks import ClassifierAttack
from assay.workers.evaluation.engine.attention_layers import Shown
from assay.workers.evaluation.engine.probe import Question, logits_question
from assay.workers.evaluation.engine.shard import Evaluation, Shard

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

    def inputs(self, data: ExampleSet, indices: Sequence[int], size: int) -> Tensor | Levels:
        """The model's inputs, (B, ...) on the CPU, in its `size`."""
        return stored_images(cast(ImageSet, data), indices, size)

    def truth(self, data: ExampleSet, indices: Sequence[int], size: int) -> Tensor:
        """What a model should answer: labels, int64 (B,)."""
        return cast(DataSet, data).labels[torch.tensor(list(indices), dtype=torch.int64)]

    def question(self, shard: Shard, rows: Sequence[int]) -> Question:
        """How the probe of a job asks about its first examples."""
        return logits_question(shard, shard.images(rows))

    def evidence(self, shard: Shard) -> dict[str, Any]:
        """What else a shard's model is looked at for, as evidence for warnings."""
        return {}

    def shown(self, shard: Shard, length: int | None) -> Shown:
        """What analyses of attention layers run; with a `length`, of words, inputs may have padding."""
        return Shown(shard.inputs, shard.classifier, padding=length is not None)

    def attack(self, made: Any) -> Evaluation:
        """The evaluation that runs what an attack component of this task returns."""
        return ClassifierAttack(made)


def classification() -> Task:
    """Image classification: a class for every image."""
    return Task()
