"""Detection: boxes of classes in an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor
from toydet.assay.data import boxes_at
from toydet.assay.detector import detector_loss

from assay.workers.data.formats.arrays import ArrayDataSet
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.evaluation.engine.shard import Evaluation
from assay.workers.tasks.classification import Task

if TYPE_CHECKING:
    from assay.workers.training.losses import Piece, Trainee, TrainingLoss

__all__ = ["detection"]

FACTS = {
    "final": {"name": "average_precision"},
    "example": {
        "model": "grid_detector",
        "data": "drawn_boxes",
        "recipe": "small_detector",
        "recipe_params": {"epochs": 10},
    },
}


class _DetectionTask(Task):
    def truth(self, data: ExampleSet, indices: Sequence[int], size: int) -> Tensor:
        """Class and corners of each box, float32 (B, T, 5)."""
        return boxes_at(cast(ArrayDataSet, data), [*indices], size)

    def trained_truth(self, data: ExampleSet) -> object:
        return data.content_sha256()

    def loss(self) -> TrainingLoss:
        from assay.workers.training import losses  # trainings alone

        class DetectorLoss(losses.TrainingLoss):
            """The mean of the detector's loss over images."""

            judged = False

            def of(
                self, trainee: Trainee, inputs: Tensor, truth: Tensor, piece: Piece
            ) -> tuple[Tensor, Tensor]:
                """Of boxes (B, T, 5)."""
                losses.seed_piece(trainee, piece)
                values = detector_loss(trainee.logits(inputs), truth, trainee.classes, inputs.shape[-1])
                return losses.unjudged(losses.share(values.mean(), piece.part))

        return DetectorLoss()

    def attack(self, made: Any) -> Evaluation:
        """An attack of this task measures itself."""
        return cast(Evaluation, made)


def detection() -> Task:
    """Detection: boxes of classes in an image."""
    return _DetectionTask()
