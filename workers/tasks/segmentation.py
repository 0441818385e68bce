"""Semantic segmentation."""

from __future__ import annotations

from typing import Any

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
    def attack(self, made: Any) -> Evaluation:
        """There is one protocol; an attack component returns a `PixelEnsemble`."""
        return SegmentationAttack(made)


def segmentation() -> Task:
    """Segmentation: a class for every pixel of an image."""
    return _Segmentation()
