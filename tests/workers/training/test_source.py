"""Which data the augmentations of a recipe are for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.workers.training.recipe import Augmentation, Recipe
from assay.workers.training.source import Batching, source_of

HOW = Batching(seed=0, image_size=8, batch_size=1, device=torch.device("cpu"))


@pytest.mark.parametrize(
    "own",
    [
        {"task": "segmentation"},
        {"task": "series", "labels": torch.zeros(1, dtype=torch.int64), "longest": 8},
    ],
)
def test_timm_augments_images_with_labels_alone(own: dict[str, Any]) -> None:
    data: Any = SimpleNamespace(name="waves", ids=("a",), channels=1, mean=(0.0,), std=(1.0,), **own)
    recipe = Recipe(epochs=1, learning_rate=0.1, augmentation=Augmentation(erase=0.5))
    with pytest.raises(ValueError, match="is for images with labels, not for 'waves'"):
        source_of(data, recipe, HOW)
