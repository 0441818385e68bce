"""Chance is keyed by the step: the same step draws the same numbers, and consecutive steps differ."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.auxiliary import add_loss, wanted
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.learner import Learner
from assay.workers.training.randomness import caller_generators_restored
from assay.workers.training.recipe import AdversarialTraining, Augmentation, Recipe

pytestmark = pytest.mark.trains

CPU = torch.device("cpu")
B, CLASSES, SIDE = 6, 3, 8
IMAGES = torch.rand(B, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(B) % CLASSES
TOKENS = torch.arange(B * 4).reshape(B, 4)
BATCHES = {
    "labels": TrainingBatch(IMAGES, LABELS),
    "maps": TrainingBatch(IMAGES, LABELS[:, None, None].expand(B, SIDE, SIDE)),
    "words": TrainingBatch(TOKENS, TOKENS + 1),
}
PLAIN = Recipe(epochs=1, learning_rate=0.01)
ATTACK = AdversarialTraining("pgd_at", epsilon=0.1, steps=1, step_size=0.05)


@pytest.fixture(autouse=True)
def generators_restored() -> Iterator[None]:
    with caller_generators_restored(CPU):
        yield


class Recording(nn.Module):
    """Records its inputs and dropout mask; its outputs do not depend on the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(CLASSES))
        self.dropout = nn.Dropout(0.5)
        self.seen: list[Tensor] = []
        self.masks: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        return self._answer(x).expand(len(x), CLASSES)

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return self._answer(tokens).sum().expand(targets.shape)

    def _answer(self, x: Tensor) -> Tensor:
        mask = self.dropout(torch.ones(64))
        self.seen.append(x.detach().clone())
        self.masks.append(mask)
        return self.scores + mask.mean() + 0 * x.sum()


class OfPixels(Recording):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :, None, None].expand(len(x), CLASSES, SIDE, SIDE)


def after(steps: list[int], kind: str = "labels", recipe: Recipe = PLAIN) -> Recording:
    """A model after one update in each of these steps, every time with the same batch."""
    model = OfPixels() if kind == "maps" else Recording()
    task = {"labels": "classification", "maps": "segmentation", "words": "language"}[kind]
    data: Any = SimpleNamespace(task=task, classes=CLASSES)
    learner = Learner(model, recipe, seed=3, data=data, device=CPU, dtype=torch.float32)
    learner.classifier.train()
    for step in steps:
        learner.update(BATCHES[kind], step=step, learning_rate=0.0)
    return model


@pytest.mark.parametrize("kind", BATCHES)
def test_consecutive_steps_drop_others(kind: str) -> None:
    first, second = after([4, 5], kind).masks
    assert not torch.equal(first, second)
    assert torch.equal(after([5], kind).masks[0], second), "of any step before"


@pytest.mark.parametrize(
    "augmentation", [Augmentation(mixup=1.0), Augmentation(cutmix=1.0)], ids=["mixup", "cutmix"]
)
def test_consecutive_steps_mix_otherwise(augmentation: Augmentation) -> None:
    recipe = Recipe(epochs=1, learning_rate=0.01, augmentation=augmentation)
    first, second = after([4, 5], recipe=recipe).seen
    assert not torch.equal(first, IMAGES)
    assert not torch.equal(first, second)
    assert torch.equal(after([5], recipe=recipe).seen[0], second)


def test_attacks_of_consecutive_steps_start_elsewhere() -> None:
    recipe = Recipe(epochs=1, learning_rate=0.01, adversarial=ATTACK)
    seen = after([4, 5], recipe=recipe).seen
    # The last pass of a step is on the attacked images; no gradient moves them from where they started.
    first, second = seen[len(seen) // 2 - 1], seen[-1]
    assert not torch.equal(first, IMAGES)
    assert not torch.equal(first, second)
    assert torch.equal(after([5], recipe=recipe).seen[-1], second)


class Adding(Recording):
    """Adds an auxiliary loss of 5 to each pass, and records whether it was wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.wanted.append(wanted())
        add_loss(torch.tensor(5.0))
        return super().forward(x)


@pytest.mark.parametrize(
    ("attack", "passes"),
    [(None, [True]), ("pgd_at", [False, False, True]), ("trades", [False, False, True, True])],
)
def test_auxiliary_losses_are_of_the_update_and_not_of_its_attack(attack: Any, passes: list[bool]) -> None:
    adversarial = attack and AdversarialTraining(attack, epsilon=0.1, steps=1, step_size=0.05)
    data: Any = SimpleNamespace(task="classification", classes=CLASSES)
    losses = []
    for kind in (Adding, Recording):
        recipe = Recipe(epochs=1, learning_rate=0.01, adversarial=adversarial)
        learner = Learner(kind(), recipe, seed=3, data=data, device=CPU, dtype=torch.float32)
        learner.classifier.train()
        losses.append(learner.update(BATCHES["labels"], step=4, learning_rate=0.0).loss)
        if kind is Adding:
            assert learner.classifier.wanted == passes
    assert losses[0] - losses[1] == pytest.approx(5.0, abs=1e-5)
