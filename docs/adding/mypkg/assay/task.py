"""Counting: a number for every image, the only logit of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.tasks.classification import Task

if TYPE_CHECKING:
    from assay.workers.training.losses import Piece, Trainee, TrainingLoss

__all__ = ["counting"]

FACTS = {
    "final": {"name": "count_error"},
    "done_by": "classification",  # models of images, with a single class
}


class _CountingTask(Task):
    def loss(self) -> TrainingLoss:
        from assay.workers.training import losses  # trainings alone

        class SquaredError(losses.TrainingLoss):
            """The mean squared error of the numbers."""

            judged = False

            def of(
                self, trainee: Trainee, inputs: Tensor, truth: Tensor, piece: Piece
            ) -> tuple[Tensor, Tensor]:
                """Of labels (B,)."""
                losses.seed_piece(trainee, piece)
                numbers = trainee.logits(inputs)[:, 0]
                return losses.unjudged(losses.share((numbers - truth).square().mean(), piece.part))

        return SquaredError()

    def trained_truth(self, data: ExampleSet) -> object:
        return data.content_sha256()


def counting() -> Task:
    """Counting: a number for every image."""
    return _CountingTask()
