"""One rise and one fall of the rate; the momentum moves the other way."""

from __future__ import annotations

import pytest

from assay.workers.training.recipes.super_convergence import super_convergence
from assay.workers.training.schedule import learning_rate


def test_the_rate_rises_to_the_peak_and_falls_to_nothing() -> None:
    recipe = super_convergence(epochs=4, learning_rate=2.0, warmup_epochs=2.0)
    rates = [learning_rate(recipe, step, steps=8, per_epoch=2, warmup_steps=4, peak=2.0) for step in range(8)]
    assert rates[0] == recipe.warmup_learning_rate
    assert max(rates) == rates[3] == 2.0
    assert rates[3:] == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0])


def test_the_momentum_is_sgds() -> None:
    recipe = super_convergence()
    assert (recipe.optimiser, recipe.momentum_cycle) == ("sgd", (0.85, 0.95))
