"""Adversarial training: the attack, the losses, and that it makes models more robust."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.attacks.adversarial.pgd import pgd
from assay.attacks.kernel import Attack, Examples, Setting, frozen
from assay.attacks.randomness import Randomness, Source
from assay.models.layers.auxiliary import add_loss
from assay.workers.data.digits import digits
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.learner import Learner
from assay.workers.training.loop import train
from assay.workers.training.objective import TRADES_START, Attacked, attack, plain, robust, starts_of
from assay.workers.training.recipe import AdversarialTraining, Augmentation, Recipe
from assay.workers.training.result import Trained

pytestmark = pytest.mark.trains

PGD_AT = AdversarialTraining("pgd_at", epsilon=0.1, steps=5, step_size=0.04)
TRADES = dataclasses.replace(PGD_AT, objective="trades", beta=3.0)
BOTH = pytest.mark.parametrize("training", [PGD_AT, TRADES], ids=lambda training: training.objective)


def network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def batch(n: int = 6) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(1)
    return torch.rand(n, 1, 8, 8, generator=noise, dtype=torch.float64), torch.arange(n) % 3


def draws(step: int, n: int) -> Source:
    return starts_of(0, step, range(n), torch.device("cpu"))


def find(model: nn.Module, images: Tensor, target: Tensor, training: AdversarialTraining) -> Attacked:
    with frozen(model):
        return attack(model, images, target, training, draws(0, len(images)))


def run_on(attacking: Attack, model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """An attack of the catalog on all images, to the end."""
    setting = Setting([str(n) for n in range(len(images))], Randomness(0, "pgd"), final_iterate=True)
    with torch.no_grad(), frozen(model):
        rows = torch.arange(len(images))
        state = attacking.start(setting, Examples(rows, images, labels, labels, model(images)))
        while not state["done"].all():
            attacking.step(setting, model, state)
    return state


@BOTH
def test_adversarial_images_stay_in_the_ball_and_the_box(training: AdversarialTraining) -> None:
    images, labels = batch()
    found = find(network(), images, labels, training)
    assert (found.images - images).abs().max() <= training.epsilon + 1e-12
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    assert not found.images.requires_grad
    assert torch.equal(found.clean_logits, network()(images).detach())


def test_without_a_random_start_it_is_the_pgd_of_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = batch()
    monkeypatch.setattr(Source, "uniform", lambda source, shape: torch.full((len(source.ids), *shape), 0.5))
    ours = find(network(), images, labels, PGD_AT).images
    kernel = pgd(epsilon=0.1, steps=5, step_size=0.04, random_start=False)
    assert torch.equal(ours, run_on(kernel, network(), images, labels)["adversarial"])


def test_the_attack_raises_what_it_is_told_to() -> None:
    images, labels = batch()
    model = network()
    worst = functional.cross_entropy(model(find(model, images, labels, PGD_AT).images), labels)
    assert worst > functional.cross_entropy(model(images), labels) + 0.1
    uniform = functional.one_hot(labels, 3).double() * 0.4 + 0.2
    mixed = find(model, images, uniform, PGD_AT).images
    assert functional.cross_entropy(model(mixed), uniform) > functional.cross_entropy(model(images), uniform)


def test_trades_starts_nearby_and_never_looks_at_the_labels() -> None:
    images, labels = batch()
    one_step = dataclasses.replace(TRADES, steps=1, step_size=1e-12)
    start = find(network(), images, labels, one_step).images - images
    inside = (images > 0.01) & (images < 0.99)
    assert start[inside].std().item() == pytest.approx(TRADES_START, rel=0.2)
    others = find(network(), images, (labels + 1) % 3, TRADES).images
    assert torch.equal(others, find(network(), images, labels, TRADES).images)


def test_the_random_start_is_keyed() -> None:
    images, labels = batch()
    assert torch.equal(
        find(network(), images, labels, PGD_AT).images, find(network(), images, labels, PGD_AT).images
    )
    other = attack(network(), images, labels, PGD_AT, draws(1, len(images)))
    assert not torch.equal(other.images, find(network(), images, labels, PGD_AT).images)


def test_the_loss_of_pgd_at_is_that_of_the_adversarial_images() -> None:
    images, labels = batch()
    model = network()
    found = find(model, images, labels, PGD_AT)
    objective = robust(model, images, found, labels, PGD_AT, 0.1)
    assert torch.equal(objective.loss, plain(model, found.images, labels, 0.1).loss)
    assert torch.equal(objective.logits, found.clean_logits)


def test_the_loss_of_trades_written_out() -> None:
    images, labels = batch()
    model = network()
    found = find(model, images, labels, TRADES)
    objective = robust(model, images, found, labels, TRADES, 0.0)
    p, q = model(images).softmax(1), model(found.images).softmax(1)
    divergence = (p * (p / q).log()).sum(1).mean()
    expected = -p[torch.arange(6), labels].log().mean() + 3 * divergence
    assert objective.loss.item() == pytest.approx(expected.item(), rel=1e-12)
    # The gradient flows through both answers.
    ours = torch.autograd.grad(objective.loss, model[1].weight)[0]
    assert torch.allclose(ours, torch.autograd.grad(expected, model[1].weight)[0], atol=1e-12)


class Watching(nn.Module):
    """Notes the mode of each pass; dropout and batch normalisation would tell them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.Linear(64, 3))
        self.modes: list[bool] = []

    def forward(self, images: Tensor) -> Tensor:
        self.modes.append(self.training)
        logits: Tensor = self.inner(images)
        return logits


@BOTH
def test_the_attack_runs_in_eval_mode_and_the_update_in_training_mode(
    standins: ModuleType, tmp_path: Path, training: AdversarialTraining
) -> None:
    model = Watching()
    recipe = Recipe(epochs=1, learning_rate=0.01, adversarial=training)
    standins.run(tmp_path, classifier=model, data=standins.Stripes(8), recipe=recipe)
    updates = 2 if training.objective == "trades" else 1
    assert model.modes == [False] * (1 + training.steps) + [True] * updates
    assert len(model.modes) == training.passes[0]
    assert model.inner[1].num_batches_tracked.item() == updates


@BOTH
def test_the_log_has_both_accuracies(
    standins: ModuleType, tmp_path: Path, training: AdversarialTraining
) -> None:
    recipe = Recipe(epochs=8, learning_rate=0.02, adversarial=training)
    log = read_log(standins.run(tmp_path, recipe=recipe))
    assert log[-1]["accuracy"] > 0.8
    assert all(0 <= record["adversarial_accuracy"] <= 1 for record in log)
    assert log[-1]["adversarial_accuracy"] > log[0]["adversarial_accuracy"]
    plain_log = read_log(standins.run(tmp_path / "plain", recipe=Recipe(epochs=1, learning_rate=0.02)))
    assert plain_log[0]["adversarial_accuracy"] is None


def read_log(trained: Trained) -> list[dict[str, float]]:
    return [json.loads(line) for line in trained.log_path.read_text().splitlines()]


@BOTH
def test_interrupted_in_the_middle_of_an_epoch(
    standins: ModuleType, tmp_path: Path, training: AdversarialTraining
) -> None:
    recipe = dataclasses.replace(standins.EVERYTHING, epochs=2, adversarial=training)

    def digest(trained: Trained) -> tuple[str, list[dict[str, float]]]:
        log = [{**record, "seconds": 0.0} for record in read_log(trained)]
        return hashlib.sha256(trained.weights_path.read_bytes()).hexdigest(), log

    undisturbed = digest(standins.run(tmp_path / "whole", recipe=recipe))
    for step in (3, 7):
        stop = standins.stop_at(step)
        with pytest.raises(KeyboardInterrupt):
            standins.run(tmp_path / "cut", recipe=recipe, checkpoint_seconds=0.0, report=stop)
        torch.manual_seed(step)
    assert digest(standins.run(tmp_path / "cut", recipe=recipe)) == undisturbed


class Regularised(nn.Module):
    """Adds its own weight decay to the objective."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 3).double()
        nn.init.ones_(self.linear.weight)

    def forward(self, images: Tensor) -> Tensor:
        add_loss(0.5 * self.linear.weight.square().sum())
        logits: Tensor = self.linear(images.flatten(1))
        return logits


@pytest.mark.parametrize("training", [None, PGD_AT, TRADES], ids=["plain", "pgd_at", "trades"])
def test_what_parts_of_the_model_add_is_minimised_once_and_in_training_passes_only(
    standins: ModuleType, training: AdversarialTraining | None
) -> None:
    images, labels = batch()
    recipe = Recipe(epochs=1, learning_rate=0.0, adversarial=training)
    model = Regularised()
    learner = Learner(
        model, recipe, seed=0, data=standins.Stripes(), device=torch.device("cpu"), dtype=torch.float64
    )
    added = learner.update(TrainingBatch(images, labels), step=0, learning_rate=0.0)
    model.forward = lambda images: model.linear(images.flatten(1))  # type: ignore[method-assign]
    without = learner.update(TrainingBatch(images, labels), step=0, learning_rate=0.0)
    assert added.loss - without.loss == pytest.approx(0.5 * 64 * 3, rel=1e-12)


@pytest.mark.costly
def test_robust_training_withstands_pgd_where_usual_training_does_not(tmp_path: Path) -> None:
    """Digits, 8 x 8, PGD-20 within 0.15 of each pixel."""
    recipe = Recipe(epochs=6, learning_rate=0.01, augmentation=Augmentation(shift=0.05))
    training = AdversarialTraining("pgd_at", epsilon=0.15, steps=4, step_size=0.06)
    usual = withstood(tmp_path / "usual", recipe)
    assert withstood(tmp_path / "pgd_at", dataclasses.replace(recipe, adversarial=training)) > usual + 0.15
    trades = dataclasses.replace(training, objective="trades")
    assert withstood(tmp_path / "trades", dataclasses.replace(recipe, adversarial=trades)) > usual + 0.15


def withstood(folder: Path, recipe: Recipe) -> float:
    """Share of the test digits that PGD-20 leaves right."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)),
        )
    train(
        model,
        digits(None, "train"),
        recipe,
        seed=0,
        image_size=8,
        batch_size=64,
        device=torch.device("cpu"),
        dtype=torch.float32,
        folder=folder,
        checkpoint_seconds=3600.0,
        report=lambda _: None,
    )
    held_out = digits(None, "test")
    images, labels = held_out.images(range(len(held_out)), 8), held_out.labels
    found = run_on(pgd(epsilon=0.15, steps=20), model, images, labels)["adversarial"]
    return (model(found).argmax(1) == labels).double().mean().item()
