from __future__ import annotations

from assay.service.catalog.catalog import load
from assay.workers.training.recipes.wikitext import wikitext
from assay.workers.training.schedule import SCHEDULES


def test_the_published_values() -> None:
    recipe = wikitext()
    assert (recipe.steps, recipe.warmup_steps, recipe.clip_norm) == (500_000, 2000, 0.25)
    assert recipe.peak_learning_rate(96) == recipe.peak_learning_rate(16) == 2.5e-4
    assert (recipe.optimiser, recipe.weight_decay, recipe.schedule) == (
        "adamw",
        0.0,
        "cosine_from_start",
    )  # Adam
    assert (recipe.ema_decay, recipe.label_smoothing) == (None, 0.0)
    rate = SCHEDULES[recipe.schedule]
    shape = {"steps": 500_000, "warmup_steps": 2000, "peak": 2.5e-4, "start": 0.0, "minimum": 0.0}
    assert rate(1999, **shape) <= rate(2000, **shape) <= 2.5e-4
    assert rate(499_999, **shape) < 1e-12


def test_only_for_language_models() -> None:
    assert load().find("recipe", "wikitext").tasks == load().find("recipe", "small_lm").tasks == ["language"]
    assert load().find("recipe", "finetune_text").tasks == ["sequence"]
