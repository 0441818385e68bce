from __future__ import annotations

from assay.service.catalog.catalog import load
from assay.workers.training.recipes.small_sequence import small_sequence


def test_the_stated_values() -> None:
    recipe = small_sequence(epochs=3, warmup_epochs=0.25, learning_rate=0.01, label_smoothing=0.1)
    assert (recipe.epochs, recipe.warmup_epochs, recipe.label_smoothing) == (3, 0.25, 0.1)
    assert recipe.peak_learning_rate(8) == recipe.peak_learning_rate(256) == 0.01
    assert (recipe.optimiser, recipe.schedule, recipe.clip_norm) == ("adamw", "cosine", 1.0)
    assert small_sequence().ema_decay is None


def test_for_sequences_only() -> None:
    assert load().find("recipe", "small_sequence").tasks == ["sequence"]
