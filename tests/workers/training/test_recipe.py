from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from assay.workers.training.recipe import AdversarialTraining, Augmentation, Recipe


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"learning_rate": -1.0},
        {"learning_rate": math.nan},
        {"warmup_epochs": 5.5},
        {"minimum_learning_rate": 2.0},
        {"weight_decay": -0.1},
        {"label_smoothing": 1.0},
        {"clip_norm": 0.0},
        {"ema_decay": 1.0},
        {"betas": (0.9, 1.0)},
        {"momentum": 1.0},
        {"reference_batch": 0},
        {"schedule": "linear"},
        {"optimiser": "lion"},
    ],
)
def test_values_out_of_range_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; allowed"):
        Recipe(**({"epochs": 5, "learning_rate": 1.0} | wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"shift": 1.5},
        {"rotate": -1},
        {"scale": 1.0},
        {"mixup": -0.1},
        {"cutmix": -1.0},
        {"smallest_crop": 0.0},
        {"erase": 1.1},
        {"repeats": 0},
        {"rand_augment": "rand-m9; rm"},
        {"rand_augment": "augmix-m3"},
    ],
)
def test_augmentation_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; allowed"):
        Augmentation(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "fgsm"},
        {"epsilon": 0.0},
        {"epsilon": 1.5},
        {"steps": 0},
        {"step_size": 0.0},
        {"step_size": math.nan},
        {"beta": -1.0},
    ],
)
def test_adversarial_training_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    right = {"objective": "trades", "epsilon": 0.1, "steps": 3, "step_size": 0.05}
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; allowed"):
        AdversarialTraining(**(right | wrong))


def test_a_recipe_cannot_change_under_a_running_training() -> None:
    recipe = Recipe(epochs=1, learning_rate=0.1)
    with pytest.raises(FrozenInstanceError):
        recipe.epochs = 2  # type: ignore[misc]


def test_the_peak_is_scaled_with_the_batch_where_it_is_for_one() -> None:
    assert Recipe(epochs=1, learning_rate=0.5).peak_learning_rate(8) == 0.5
    assert Recipe(epochs=1, learning_rate=5e-4, reference_batch=512).peak_learning_rate(1024) == 1e-3


def test_whether_pixels_move() -> None:
    assert not Augmentation(mixup=1.0).moves
    assert Augmentation(flip=True).moves
    assert Augmentation(rotate=1.0).moves


def test_steps_are_positive_and_hold_the_warm_up() -> None:
    with pytest.raises(ValueError, match="steps is 0"):
        Recipe(epochs=1, learning_rate=0.1, steps=0)
    with pytest.raises(ValueError, match="warmup_steps is 11; allowed: a finite number from 0 to 10"):
        Recipe(epochs=1, learning_rate=0.1, steps=10, warmup_steps=11)
