from __future__ import annotations

from assay.service.catalog.catalog import load
from assay.workers.training.recipes.small_segmenter import small_segmenter


def test_defaults() -> None:
    recipe = small_segmenter()
    assert (recipe.epochs, recipe.warmup_epochs, recipe.label_smoothing) == (30, 1.0, 0.0)
    assert recipe.augmentation.flip
    assert recipe.augmentation.mixup == 0


def test_is_for_segmentation() -> None:
    assert load().find("recipe", "small_segmenter").tasks == ["segmentation"]
    assert load().find("recipe", "small_vit").tasks == ["classification"]
