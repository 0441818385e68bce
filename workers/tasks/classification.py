"""Image classification, and the default of every task.

`Task` is what workers do; another task overrides the methods that differ. The service knows a task by its
`FACTS` (`service/catalog/tasks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.layers.token_model import reads_series
from assay.service.contract.stored_specs import EvaluationItem, ModelReference, Params
from assay.workers.data.formats.dataset import (
    DataSet,
    ExampleSet,
    ImageSet,
    Levels,
    model_class_names,
    stored_images,
)
from assay.workers.evaluation.engine.attack.attacks import ClassifierAttack
from assay.workers.evaluation.engine.attention_layers import Shown
from assay.workers.evaluation.engine.probe import Question, logits_question
from assay.workers.evaluation.engine.shard import Evaluation, Shard
from assay.workers.jobs.loading import Loaded, ModelRequest, load_images, load_program
from assay.workers.published.match import known_as

if TYPE_CHECKING:
    from assay.workers.training.batches import Source
    from assay.workers.training.losses import TrainingLoss
    from assay.workers.training.recipe import Recipe
    from assay.workers.training.source import Batching

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

    program = "classification"  # What an exported program of images is for

    def check(self, data: ExampleSet) -> None:
        """Look, before anything is measured, at files that shards will read."""

    def chosen(self, data: ExampleSet, params: Params) -> ExampleSet:
        """The set for an evaluation with these parameters."""
        return data

    def known_as(self, data: ExampleSet) -> str | None:
        """The name of the well-known data set that this one is; None where it is none."""
        return known_as(data.class_names, len(data.ids), model_class_names(data))

    def facts_of_attack(
        self, item: EvaluationItem, training: Callable[[], ExampleSet], size: int
    ) -> dict[str, object]:
        """Facts for the plan of an attack, by the training set and the inputs' size."""
        return {}

    def load(self, request: ModelRequest) -> Loaded:
        """The model of a spec, with the weights of a file, or random or pulled ones.

        BadWeights: keys or shapes do not fit; a ValueError: the model does not allow this data.
        """
        if request.is_program:
            return load_program(request, self.program)
        backbone = request.backbone()
        self.check_model(request.model, backbone, request.data)
        return load_images(request, backbone)

    def check_model(self, model: ModelReference, backbone: nn.Module, data: ExampleSet) -> None:
        """Refuse a model for other inputs: a ValueError."""
        if reads_series(backbone):
            raise ValueError(f"the model {model['name']!r} does not read the data set {data.name!r}")

    def trial_inputs(self, data: ExampleSet, size: int, count: int) -> Tensor:
        """Inputs, of any content, by which costs are measured."""
        return torch.zeros(count, data.channels, size, size)

    def trial(self, classifier: Classifier, given: Tensor) -> Callable[[], Tensor]:
        """A pass of such inputs through the model."""
        if given.is_floating_point():
            given = given.to(classifier.mean.dtype).requires_grad_()
        return lambda: classifier(given)

    def windows(self, item: EvaluationItem, data: ExampleSet, size: int) -> float:
        """How many inputs an example is for an evaluation, on average."""
        return 1.0

    def examples_together(self, batch_size: int) -> int:
        """How many examples make a batch of so many inputs."""
        return batch_size

    def check_fit(
        self, data: ExampleSet, model_data: ExampleSet, trained: Sequence[str] | None, where: str
    ) -> None:
        """Refuse data that a model for `model_data` cannot be evaluated on: a ValueError.

        `trained` has the names of the classes that its training had, if known.
        """

    def batches(self, data: ExampleSet, recipe: Recipe, how: Batching) -> Source:
        """The batches of a training."""
        from assay.workers.training.source import image_batches  # trainings alone

        return image_batches(cast(ImageSet, data), recipe, how)

    def loss(self) -> TrainingLoss:
        """The loss of a training."""
        from assay.workers.training.losses import TrainingLoss

        return TrainingLoss()

    def trained_truth(self, data: ExampleSet) -> object:
        """What tells training sets with the same ids apart, in JSON."""
        return data.content_sha256()

    def held_out_loss(self, shard: Shard) -> Callable[[nn.Module], float] | None:
        """The loss of a model in training on the held-out examples; None: none is measured."""
        return None

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


class _ClassificationTask(Task):
    def trained_truth(self, data: ExampleSet) -> object:
        return cast(DataSet, data).labels.tolist()


def classification() -> Task:
    """Image classification: a class for every image."""
    return _ClassificationTask()
