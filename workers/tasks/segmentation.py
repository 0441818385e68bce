"""Semantic segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor

from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.data.formats.segmentation import SegmentationSet
from assay.workers.evaluation.engine.attacks import SegmentationAttack
from assay.workers.evaluation.engine.shard import Evaluation
from assay.workers.tasks.classification import Task

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


class _Segmentation(Task):
    def truth(self, data: ExampleSet, indices: Sequence[int], size: int) -> Tensor:
        """Label maps, uint8 (B, S, S), 255 where ignored."""
        return cast(SegmentationSet, data).label_maps(indices, size)

    def attack(self, made: Any) -> Evaluation:
        """There is one protocol; an attack component returns a `PixelEnsemble`."""
        return SegmentationAttack(made)


def segmentation() -> Task:
    """Segmentation: a class for every pixel of an image."""
    return _Segmentation()
