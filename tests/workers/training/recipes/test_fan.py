from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from assay.workers.training.recipes.deit import deit
from assay.workers.training.recipes.fan import fan


def test_the_published_values() -> None:
    recipe = fan()
    assert recipe.peak_learning_rate(128 * 8) == 2e-3
    assert (recipe.epochs, recipe.warmup_epochs, recipe.warmup_learning_rate) == (300, 5, 1e-6)
    assert (recipe.minimum_learning_rate, recipe.weight_decay, recipe.label_smoothing) == (1e-6, 0.05, 0.1)
    assert (recipe.schedule, recipe.optimiser, recipe.ema_decay) == ("cosine_from_start", "adamw", 0.99992)
    assert recipe.augmentation == deit().augmentation


@pytest.mark.trains
def test_two_steps_of_it(standins: ModuleType, tmp_path: Path) -> None:
    trained = standins.run(
        tmp_path, data=standins.Stripes(16), recipe=fan(epochs=1, warmup_epochs=1, total_batch=None)
    )
    assert trained.steps == 2
    assert trained.average_path is not None
