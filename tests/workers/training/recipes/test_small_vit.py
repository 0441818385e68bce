from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from assay.service.catalog.rules import evaluate
from assay.workers.training.recipe import AdversarialTraining
from assay.workers.training.recipes.small_vit import PASSES, small_vit


def test_defaults() -> None:
    recipe = small_vit()
    assert recipe.epochs == 60
    assert recipe.warmup_epochs == 5
    assert not recipe.augmentation.flip


@pytest.mark.parametrize(("epochs", "warmup"), [(1, 1 / 12), (12, 1), (60, 5), (300, 5)])
def test_default_warm_up_fits_any_number_of_epochs(epochs: int, warmup: float) -> None:
    assert small_vit(epochs=epochs).warmup_epochs == pytest.approx(warmup)


def test_parameters_reach_the_recipe() -> None:
    recipe = small_vit(
        epochs=7,
        learning_rate=0.5,
        warmup_epochs=2,
        ema_decay=0.9,
        clip_norm=None,
        shift=0.3,
        flip=True,
        mixup=0.2,
    )
    assert (recipe.epochs, recipe.learning_rate, recipe.warmup_epochs) == (7, 0.5, 2)
    assert (recipe.ema_decay, recipe.clip_norm) == (0.9, None)
    assert (recipe.augmentation.shift, recipe.augmentation.flip, recipe.augmentation.mixup) == (
        0.3,
        True,
        0.2,
    )


def test_adversarial_training_is_chosen_by_name() -> None:
    assert small_vit().adversarial is None
    chosen = small_vit(adversarial="trades", attack_epsilon=0.1, attack_steps=7, trades_beta=2.0).adversarial
    assert chosen == AdversarialTraining("trades", epsilon=0.1, steps=7, step_size=0.025, beta=2.0)
    own = small_vit(adversarial="pgd_at", attack_step_size=0.01).adversarial
    assert own is not None
    assert (own.epsilon, own.step_size) == (8 / 255, 0.01)


@pytest.mark.parametrize("objective", [None, "pgd_at", "trades"])
def test_the_catalog_states_the_passes_that_the_training_makes(objective: Any) -> None:
    params = {"adversarial": objective, "attack_steps": 7}
    adversarial = small_vit(**params).adversarial
    wanted = (1, 1) if adversarial is None else adversarial.passes
    assert tuple(evaluate(count, {"params": params}) for count in PASSES) == wanted


def test_what_the_rules_forbid_is_refused_without_them_too() -> None:
    with pytest.raises(ValueError, match="warmup_epochs is 3; allowed"):
        small_vit(epochs=2, warmup_epochs=3)
    with pytest.raises(ValueError, match=r"minimum_learning_rate is 0\.1; allowed"):
        small_vit(learning_rate=0.01, minimum_learning_rate=0.1)


def test_the_catalog_can_read_it_without_torch() -> None:
    code = "import sys, workers.training.recipes.small_vit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
