from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from assay.models.vit import vit
from assay.workers.training.augmentation.augment import mix
from assay.workers.training.recipe import Augmentation
from assay.workers.training.recipes.deit import deit
from assay.workers.training.source import Batching, source_of

PUBLISHED = Augmentation(
    flip=True,
    smallest_crop=0.08,
    rand_augment="rand-m9-mstd0.5-inc1",
    mixup=0.8,
    cutmix=1.0,
    erase=0.25,
    repeats=3,
)


def test_the_published_values() -> None:
    recipe = deit()
    assert recipe.peak_learning_rate(256 * 4) == 1e-3
    assert (recipe.epochs, recipe.warmup_epochs, recipe.warmup_learning_rate) == (300, 5, 1e-6)
    assert (recipe.minimum_learning_rate, recipe.weight_decay, recipe.label_smoothing) == (1e-5, 0.05, 0.1)
    assert (recipe.betas, recipe.epsilon, recipe.clip_norm) == ((0.9, 0.999), 1e-8, None)
    assert (recipe.schedule, recipe.optimiser, recipe.ema_decay) == ("cosine_from_start", "adamw", 0.99996)
    assert (recipe.by_epoch, recipe.epochs_late) == (True, 1)
    assert recipe.augmentation == PUBLISHED
    assert recipe.adversarial is None


def test_parameters_reach_the_recipe() -> None:
    recipe = deit(epochs=9, repeated_augmentation=False, clip_norm=1.0, adversarial="trades")
    assert (recipe.epochs, recipe.augmentation.repeats, recipe.clip_norm) == (9, 1, 1.0)
    assert recipe.adversarial is not None
    assert (recipe.adversarial.objective, recipe.adversarial.step_size) == ("trades", 1 / 255)


@pytest.mark.trains
def test_two_steps_of_it(standins: ModuleType, tmp_path: Path) -> None:
    """Each part of the recipe takes part, and the same steps give the same weights."""
    recipe = deit(epochs=1, warmup_epochs=0, learning_rate=0.5, total_batch=None)

    def weights(folder: str) -> bytes:
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            model = vit(3, 1, image_size=8, patch_size=4, depth=1, width=12, heads=3)
        trained = standins.run(tmp_path / folder, classifier=model, data=standins.Stripes(16), recipe=recipe)
        assert trained.steps == 2
        assert trained.average_path is not None
        content: bytes = trained.weights_path.read_bytes()
        return content

    assert weights("one") == weights("two")
    data = standins.Stripes(16)
    size, device = standins.SIZE, torch.device("cpu")
    source = source_of(data, recipe, Batching(seed=0, image_size=size, batch_size=16, device=device))
    (changed,) = source.between(0, 1)
    images = data.images(range(16), size)
    assert not (changed.images[:, None] == images[None]).flatten(2).all(2).any()
    _, target = mix(changed.images, changed.truth, recipe.augmentation, classes=3, seed=0, step=0)
    assert target.shape == (16, 3)


def test_the_catalog_can_read_it_without_torch() -> None:
    code = "import sys, workers.training.recipes.deit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
