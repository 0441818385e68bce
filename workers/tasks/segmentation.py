"""Semantic segmentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.attacks.segmentation.losses import class_weights
from assay.service.contract.stored_specs import EvaluationItem
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet, MissingData
from assay.workers.data.formats.segmentation import IGNORE, SegmentationSet
from assay.workers.evaluation.engine.attack.attacks import SegmentationAttack
from assay.workers.evaluation.engine.shard import Evaluation
from assay.workers.tasks.classification import Task

if TYPE_CHECKING:
    from assay.workers.training.losses import TrainingLoss

__all__ = ["segmentation"]

FACTS = {
    "per_pixel": True,
    "example": {
        "model": "segmenter",
        "data": "shapes",
        "recipe": "small_segmenter",
        "model_params": {
            "backbone": {
                "name": "vit",
                "params": {"image_size": 64, "patch_size": 8, "width": 48, "depth": 2, "heads": 3},
            }
        },
        "recipe_params": {"epochs": 3},
    },
}


# Label maps read at a time.
MAPS = 64


class _SegmentationTask(Task):
    program = "segmentation"

    def facts_of_attack(
        self, item: EvaluationItem, training: Callable[[], ExampleSet], size: int
    ) -> dict[str, object]:
        """The training pixels of each class (K,), where a loss of the attack is balanced by them.

        They are counted in squares of `size` pixels, the model's input. MissingData without training images,
        a ValueError where none of their pixels has a class.
        """
        ensemble: PixelEnsemble = catalog.build("attack", item["name"], item["params"])()
        if not ensemble.balanced:
            return {}
        try:
            counts = pixels_of_classes(cast(SegmentationSet, training()), size)
        except MissingData as error:
            message = (
                f"{item['name']} has a loss that weighs each class by its pixels in the training images"
                f" (mce_bal): {error}"
            )
            raise MissingData(message) from error
        class_weights(counts)  # raises where they are unusable
        return {"class_pixels": counts}

    def loss(self) -> TrainingLoss:
        from assay.workers.training.losses import PixelLoss  # trainings alone

        return PixelLoss()

    def truth(self, data: ExampleSet, indices: Sequence[int], size: int) -> Tensor:
        """Label maps, uint8 (B, S, S), 255 where ignored."""
        return cast(SegmentationSet, data).label_maps(indices, size)

    def attack(self, made: Any) -> Evaluation:
        return SegmentationAttack(made)


def pixels_of_classes(data: SegmentationSet, size: int) -> list[int]:
    """Pixels of each class in the squares of this side, over all images, (K,)."""
    counts = [0] * data.classes
    for start in range(0, len(data.ids), MAPS):
        rows = range(start, min(start + MAPS, len(data.ids)))
        maps = data.label_maps(rows, size)
        found = maps[maps != IGNORE].long().bincount(minlength=data.classes)
        counts = [before + more for before, more in zip(counts, found.tolist(), strict=True)]
    return counts


def segmentation() -> Task:
    """Segmentation: a class for every pixel of an image."""
    return _SegmentationTask()
