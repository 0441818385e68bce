"""A batch whose gradients are accumulated in pieces makes the same step as the whole batch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from assay.models.layers.auxiliary import add_loss
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.learner import Learner
from assay.workers.training.recipe import AdversarialTraining, Augmentation, Recipe

pytestmark = pytest.mark.trains

CPU = torch.device("cpu")
B, CLASSES, SIDE, WORDS = 7, 3, 4, 5
DRAWS = torch.Generator().manual_seed(0)
IMAGES = torch.rand(B, 1, SIDE, SIDE, generator=DRAWS, dtype=torch.float64)
LABELS = torch.arange(B) % CLASSES
MAPS = torch.randint(0, CLASSES, (B, SIDE, SIDE), generator=DRAWS, dtype=torch.uint8)
MAPS[0], MAPS[3, :2] = IGNORE, IGNORE  # pieces with other numbers of pixels
TOKENS = torch.randint(0, WORDS, (B, 6), generator=DRAWS)
BATCHES = {
    "classification": TrainingBatch(IMAGES, LABELS),
    "segmentation": TrainingBatch(IMAGES, MAPS),
    "language": TrainingBatch(TOKENS, TOKENS.roll(-1, 1)),
}
PLAIN = Recipe(epochs=1, learning_rate=0.05, label_smoothing=0.1, weight_decay=0.1)
ATTACK = AdversarialTraining("trades", epsilon=0.1, steps=2, step_size=0.04)
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("classification", {}),
    "mixup": ("classification", {"augmentation": Augmentation(mixup=0.8)}),
    "mixup or cutmix": ("classification", {"augmentation": Augmentation(mixup=0.8, cutmix=1.0)}),
    "trades": ("classification", {"adversarial": ATTACK}),
    "clipped": ("classification", {"clip_value": 1e-3, "clip_norm": 2e-3}),
    "maps": ("segmentation", {}),
    "words": ("language", {}),
}


class Network(nn.Module):
    """Without batch normalisation and dropout; adds a loss that is a mean over the batch."""

    def __init__(self, task: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.layers = nn.Sequential(nn.Linear(SIDE * SIDE, 8), nn.Tanh(), nn.Linear(8, CLASSES))
        self.dense = nn.Conv2d(1, CLASSES, 1)
        self.words = nn.Linear(8, WORDS)
        self.task = task

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.dense(x) if self.task == "segmentation" else self.layers(x.flatten(1))
        add_loss(0.1 * logits.square().mean())
        return logits

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor) -> Tensor:
        logits = self.words(self.embedding(tokens).tanh())
        return nn.functional.cross_entropy(logits.movedim(-1, 1), targets, reduction="none")


def stepped(name: str, at_once: int | None) -> tuple[dict[str, Tensor], list[Any]]:
    """Weights and results after two updates."""
    task, changes = TRAININGS[name]
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = Network(task).double()
    data: Any = SimpleNamespace(task=task, classes=CLASSES)
    recipe = dataclasses.replace(PLAIN, **changes)
    learner = Learner(model, recipe, seed=3, data=data, device=CPU, dtype=torch.float64, at_once=at_once)
    learner.classifier.train()
    results = [learner.update(BATCHES[task], step=step, learning_rate=0.05) for step in range(2)]
    return model.state_dict(), results


@pytest.mark.sampled
@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("at_once", [1, 2, 3, 6])
def test_pieces_make_the_step_of_the_whole_batch(name: str, at_once: int) -> None:
    whole, results = stepped(name, None)
    pieces, found = stepped(name, at_once)
    for key, tensor in whole.items():
        torch.testing.assert_close(pieces[key], tensor, rtol=0, atol=1e-9, msg=f"{name}: {key}")
    for one, other in zip(results, found, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-12)
        assert other[1:] == one[1:]


@pytest.mark.parametrize("at_once", [1, 2, 3, 6, 7, 100])
def test_a_pass_has_no_more_examples_than_asked_for_or_a_pair(at_once: int) -> None:
    seen: list[int] = []
    model = Network("classification").double()
    model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    data: Any = SimpleNamespace(task="classification", classes=CLASSES)
    learner = Learner(model, PLAIN, seed=3, data=data, device=CPU, dtype=torch.float64, at_once=at_once)
    learner.update(BATCHES["classification"], step=0, learning_rate=0.0)
    assert sum(seen) == B
    assert max(seen) <= max(at_once, 2)
    assert len(seen) == 1 or at_once < B


def test_clipped_values_are_torchs() -> None:
    recipe = dataclasses.replace(PLAIN, optimiser="sgd", momentum=0.0, weight_decay=0.0, clip_value=1e-3)
    model = Network("classification").double()
    before = model.layers[0].weight.detach().clone()
    data: Any = SimpleNamespace(task="classification", classes=CLASSES)
    learner = Learner(model, recipe, seed=3, data=data, device=CPU, dtype=torch.float64)
    learner.update(BATCHES["classification"], step=0, learning_rate=1.0)
    moved = (model.layers[0].weight - before).detach().abs()
    assert moved.max().item() == pytest.approx(1e-3, rel=1e-9)
    assert 0 < (moved < 0.99e-3).sum() < moved.numel()


PLAIN_NETWORK = Recipe(epochs=2, learning_rate=0.05, augmentation=Augmentation(shift=0.1, mixup=0.4))


def plain_network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.GELU(), nn.Linear(9, 3))


def test_the_recipes_batch_is_reached_by_smaller_ones(standins: ModuleType, tmp_path: Path) -> None:
    def run(folder: str, batch_size: int, total: int | None) -> Any:
        recipe = dataclasses.replace(PLAIN_NETWORK, total_batch=total, reference_batch=8)
        given = {"classifier": plain_network(), "recipe": recipe, "batch_size": batch_size}
        return standins.run(tmp_path / folder, dtype=torch.float64, **given)

    whole, pieces = run("whole", 16, None), run("pieces", 5, 16)
    assert (whole.steps, whole.batch_size, whole.at_once) == (4, 16, 16)
    assert (pieces.steps, pieces.batch_size, pieces.at_once) == (4, 16, 5)
    expected, found = load_file(whole.weights_path), load_file(pieces.weights_path)
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=0, atol=1e-9)
    larger = run("larger", 64, 16)
    assert larger.weights_path.read_bytes() == whole.weights_path.read_bytes()
    assert larger.at_once == 16, "a batch is never larger than the recipe's"


def test_interrupted_while_accumulating(standins: ModuleType, tmp_path: Path) -> None:
    recipe = dataclasses.replace(standins.EVERYTHING, total_batch=12)
    given = {"recipe": recipe, "batch_size": 4}
    whole = standins.run(tmp_path / "whole", **given)
    with pytest.raises(KeyboardInterrupt):
        standins.run(tmp_path / "cut", checkpoint_seconds=0.0, report=standins.stop_at(7), **given)
    with pytest.raises(ValueError, match=r"another training \(different: accumulated\)"):
        standins.run(tmp_path / "cut", **(given | {"batch_size": 12}))
    cut = standins.run(tmp_path / "cut", **given)
    assert cut.weights_path.read_bytes() == whole.weights_path.read_bytes()


def test_pieces_drop_out_differently(standins: ModuleType, tmp_path: Path) -> None:
    masks: list[Tensor] = []
    model = standins.classifier()
    model[3].register_forward_hook(lambda _, given, out: masks.append((out == 0) & (given[0] != 0)))
    recipe = Recipe(epochs=1, learning_rate=0.01, total_batch=8)
    standins.run(tmp_path, classifier=model, recipe=recipe, batch_size=4)
    assert not torch.equal(masks[0], masks[1])


def test_tokens_state_the_batch_of_texts() -> None:
    recipe = Recipe(epochs=1, learning_rate=0.1, total_tokens=1000, published_tokens=2048)
    assert (recipe.step_examples(3, 100), recipe.published_examples(100)) == (10, 20)
    assert recipe.step_examples(3, 5000) == 1
    plain = Recipe(epochs=1, learning_rate=0.1, published_batch=96)
    assert (plain.step_examples(3, 100), plain.published_examples(100)) == (3, 96)
