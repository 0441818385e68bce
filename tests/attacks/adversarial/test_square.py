"""The Square Attack: against pyautoattack's class with the same draws, and our own draws per example."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from pyautoattack.square import SquareAttack
from torch import Tensor, nn

from assay.attacks.adversarial.square import square
from assay.attacks.kernel import Examples, Setting, concatenate
from assay.attacks.randomness import LibraryStream, Randomness
from assay.attacks.threat import Norm, sizes
from tests.attacks.adversarial.batches import digits, drive, network

BALLS: list[tuple[Norm, float]] = [("Linf", 0.15), ("L2", 0.8)]


class Linear(nn.Module):
    """Two classes on images of any shape: class 0 where the mean of an image is above a half."""

    def forward(self, images: Tensor) -> Tensor:
        score = images.flatten(1).mean(1) - 0.5
        return torch.stack([score, -score], dim=1)


def library(model: nn.Module, norm: str, epsilon: float, queries: int, **options: Any) -> SquareAttack:
    return SquareAttack(
        model, norm=norm, eps=epsilon, n_queries=queries, seed=0, **{"resc_schedule": False} | options
    )


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["undefended", "fgsm-trained"])
@pytest.mark.parametrize(("norm", "epsilon"), BALLS)
@pytest.mark.parametrize("options", [{}, {"n_restarts": 3}, {"resc_schedule": True}], ids=str)
def test_compatible_breaks_what_the_library_breaks(
    name: str, norm: Norm, epsilon: float, options: dict[str, Any]
) -> None:
    model, images, labels = network(name), digits()[0][:128], digits()[1][:128]
    attack = square(
        epsilon=epsilon,
        norm=norm,
        queries=150,
        restarts=options.get("n_restarts", 1),
        rescale_schedule=options.get("resc_schedule", False),
        backend="compatible",
    )
    found = drive(attack, model, images, labels)
    theirs = library(model, norm, epsilon, 150, **options).perturb(images, labels)
    broken = model(theirs).argmax(1) != labels
    assert torch.equal(found.broken, broken)
    assert 0 < int(broken.sum()) < 128
    attacked = broken & (model(images).argmax(1) == labels)
    # In L2 squares with little in them are divided by their norm, which enlarges rounding.
    tolerance = 0 if norm == "Linf" else 1e-4
    torch.testing.assert_close(found.best[attacked], theirs[attacked], rtol=0, atol=tolerance)


@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.05), ("L2", 0.3)])
@pytest.mark.parametrize("shape", [(3, 16, 16), (3, 10, 12), (1, 5, 9)], ids=str)
def test_the_images_after_some_queries_are_the_librarys(
    norm: Norm, epsilon: float, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 5)).requires_grad_(False)
    model[1].bias[0] += 3  # out of reach
    images = torch.rand(12, *shape)
    labels = model(images).argmax(1)
    attack = square(epsilon=epsilon, norm=norm, queries=70, backend="compatible")
    setting = Setting([str(row) for row in range(12)], LibraryStream(0), final_iterate=True)
    with torch.no_grad():
        # The library gives unbroken images back as they were, so take its run inside: nothing is broken here.
        state = attack.start(setting, Examples(torch.arange(12), images, labels, labels, model(images)))
        while not state["done"].all():
            attack.step(setting, model, state)
        theirs = library(model, norm, epsilon, 70)
        theirs.init_hyperparam(images)
        torch.manual_seed(0)
        _, expected = theirs.attack_single_run(images, labels)
    assert bool((model(expected).argmax(1) == labels).all())
    torch.testing.assert_close(state["best"], expected, rtol=0, atol=0 if norm == "Linf" else 1e-5)
    assert sizes(state["best"] - images, norm).min() > 0.5 * epsilon


@pytest.mark.sampled
@pytest.mark.parametrize(("norm", "epsilon"), BALLS)
def test_batches_do_not_matter_and_seeds_do(norm: Norm, epsilon: float) -> None:
    model = copy.deepcopy(network("undefended")).double()
    images, labels = digits()[0][:40].double(), digits()[1][:40]
    attack = square(epsilon=epsilon, norm=norm, queries=130)
    runs = [drive(attack, model, images, labels, batch_size=size) for size in (1, 7, 64, 64)]
    other = drive(attack, model, images, labels, randomness=Randomness(1, "square"))
    for found in runs[1:]:
        assert torch.equal(found.broken, runs[0].broken)
        assert torch.equal(found.forward, runs[0].forward)
        torch.testing.assert_close(found.best, runs[0].best, rtol=0, atol=1e-12)
    assert 0 < int(runs[0].broken.sum()) < 40
    assert not torch.equal(other.best, runs[0].best)


def test_slots_of_one_batch_may_be_at_different_queries() -> None:
    """Squares of several sizes at once, and blocks of draws that begin at different steps."""
    model, images, labels = network("fgsm-trained"), digits()[0][:6], digits()[1][:6]
    setting = Setting([str(row) for row in range(6)], Randomness(0, "square"))
    for norm in ("Linf", "L2"):
        attack = square(epsilon=0.02, norm=norm, queries=60)

        def start(rows: list[int], attack: Any = attack) -> Any:
            index = torch.tensor(rows)
            logits = model(images[index])
            return attack.start(setting, Examples(index, images[index], labels[index], labels[index], logits))

        with torch.no_grad():
            alone = start([4, 5])
            for _ in range(61):
                attack.step(setting, model, alone)
            mixed = start([0, 1])
            for _ in range(30):
                attack.step(setting, model, mixed)
            mixed = concatenate([mixed, start([4, 5])])
            for _ in range(61):
                attack.step(setting, model, mixed)
        assert alone["done"].all()
        torch.testing.assert_close(mixed["best"][2:], alone["best"], rtol=0, atol=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("restarts", [1, 2])
def test_no_step_asks_the_device(restarts: int) -> None:
    """Tensors on the device `meta` have no values: whoever asks for one, fails."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).to("meta")
    images, labels = torch.empty(2, 1, 4, 4, device="meta"), torch.empty(2, dtype=torch.int64, device="meta")
    attack, setting = square(queries=70, restarts=restarts), Setting(["a", "b"], Randomness(0, "square"))
    with torch.no_grad():
        state = attack.start(setting, Examples(torch.arange(2), images, labels, labels, model(images)))
        while not state["done"].all():
            attack.step(setting, model, state)
    assert state["restart"].tolist() == [restarts, restarts]


@pytest.mark.costly
@pytest.mark.parametrize(("norm", "epsilon"), BALLS)
def test_robust_accuracy_is_near_the_librarys(norm: Norm, epsilon: float) -> None:
    """Other draws, the same search: 300 examples, of which 5 points are 15. About 2 points were seen."""
    model, images, labels = network("undefended"), digits()[0][:300], digits()[1][:300]
    found = drive(square(epsilon=epsilon, norm=norm, queries=200), model, images, labels)
    theirs = library(model, norm, epsilon, 200).perturb(images, labels)
    broken = model(theirs).argmax(1) != labels
    ours, reference = float(found.broken.double().mean()), float(broken.double().mean())
    assert abs(ours - reference) <= 0.05
    assert 0.2 < reference < 0.9


@pytest.mark.sampled
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("shape", [(1, 12, 30), (3, 30, 7), (1, 24, 24), (2, 3, 3), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("backend", ["native", "compatible"])
def test_images_of_any_shape(norm: Norm, shape: tuple[int, ...], backend: Any) -> None:
    torch.manual_seed(0)
    images = (0.6 + 0.02 * torch.rand(4, *shape)).double()
    labels = torch.zeros(4, dtype=torch.int64)
    epsilon = 0.2 if norm == "Linf" else 0.2 * torch.Size(shape).numel() ** 0.5
    attack = square(epsilon=epsilon, norm=norm, queries=300, backend=backend)
    found = drive(attack, Linear(), images, labels)
    moved = sizes(found.best - images, norm)
    assert moved.max() <= epsilon + 1e-12
    assert moved.min() > 0
    assert found.best.min() >= 0
    if norm == "Linf":
        assert found.broken.any(), "half of the stripes are on the other side"


@pytest.mark.parametrize("backend", ["native", "compatible"])
def test_all_examples_broken_by_the_start(backend: Any) -> None:
    """auto-attack #81: the library then runs the model on an empty batch."""

    class Fragile(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            same = (images == 0.5).flatten(1).all(1).float()
            return torch.stack([same, 0.5 * torch.ones_like(same)], dim=1)

    images, labels = torch.full((5, 1, 8, 8), 0.5), torch.zeros(5, dtype=torch.int64)
    found = drive(square(epsilon=0.1, backend=backend), Fragile(), images, labels)
    assert found.broken.all()
    assert found.forward.tolist() == [1] * 5


def test_targets_lower_the_loss_of_the_target() -> None:
    model, images, labels = network("fgsm-trained"), digits()[0][:20], digits()[1][:20]
    target = (labels + 1) % 10
    attack = square(epsilon=0.05, queries=100, targeted=True, target="next")
    setting = Setting([str(row) for row in range(20)], Randomness(0, "square"), final_iterate=True)
    with torch.no_grad():
        state = attack.start(setting, Examples(torch.arange(20), images, labels, labels, model(images)))
        while not state["done"].all():
            attack.step(setting, model, state)
        before, after = (
            nn.functional.cross_entropy(model(points), target, reduction="none")
            for points in (images, state["best"])
        )
    assert bool((after < before).all())


def test_the_library_as_a_backend() -> None:
    model, images, labels = network("undefended"), digits()[0][:60], digits()[1][:60]
    state = torch.random.get_rng_state()
    found = drive(square(epsilon=0.15, queries=50, backend="pyautoattack"), model, images, labels)
    assert torch.equal(torch.random.get_rng_state(), state)
    compatible = drive(square(epsilon=0.15, queries=50, backend="compatible"), model, images, labels)
    assert torch.equal(found.broken, compatible.broken)
    assert 0 < int(found.broken.sum()) < 60
    unclipped = square(epsilon=0.15, queries=50, backend="pyautoattack")
    found = drive(unclipped, model, images, labels, box=None)
    assert found.best.min() < -0.1
    assert sizes(found.best - images, "Linf").max() <= 0.15 + 1e-5
