"""FAB, targeted and not: against pyautoattack's class, and what has to hold for our own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from pyautoattack.fab_pt import FABAttack_PT
from torch import Tensor, nn

from assay.attacks.adversarial.fab import fab
from assay.attacks.adversarial.fab_t import fab_t
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Norm, sizes
from tests.attacks.adversarial.batches import digits, drive, network

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled

BALLS: list[tuple[Norm, float]] = [("Linf", 0.1), ("L2", 0.6)]
COUNT = 128


def make(targets: int | None, **parameters: Any) -> Attack:
    return fab(**parameters) if targets is None else fab_t(targets=targets, **parameters)


def library(model: nn.Module, norm: str, epsilon: float, **parameters: Any) -> FABAttack_PT:
    targets = parameters.pop("targets")
    attack = FABAttack_PT(model, norm=norm, eps=epsilon, seed=0, targeted=targets is not None, **parameters)
    attack.n_target_classes = targets
    return attack


@pytest.mark.parametrize("name", ["undefended", "fgsm-trained"])
@pytest.mark.parametrize(("norm", "epsilon"), BALLS)
@pytest.mark.parametrize(
    ("targets", "iterations", "restarts"),
    [(9, 20, 1), (3, 8, 3), (None, 20, 1), (None, 8, 3)],
    ids=["fab_t", "fab_t restarts", "fab", "fab restarts"],
)
def test_compatible_breaks_what_the_library_breaks(
    name: str, norm: Norm, epsilon: float, targets: int | None, iterations: int, restarts: int
) -> None:
    model, images, labels = network(name), digits()[0][:COUNT], digits()[1][:COUNT]
    attack = make(
        targets, epsilon=epsilon, norm=norm, iterations=iterations, restarts=restarts, backend="compatible"
    )
    found = drive(attack, model, images, labels)
    theirs = library(model, norm, epsilon, targets=targets, n_iter=iterations, n_restarts=restarts)
    broken = model(theirs.perturb(images, labels)).argmax(1) != labels
    assert torch.equal(found.broken, broken)
    assert int((model(images).argmax(1) != labels).sum()) < int(broken.sum()) < COUNT


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("targets", [1, None], ids=["fab_t", "fab"])
@pytest.mark.parametrize("iterations", [1, 4, 12])
def test_the_path_is_the_librarys(
    norm: Norm, targets: int | None, iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, to which the library's casts are turned here: the smallest adversarial image found."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    model = copy.deepcopy(network("undefended")).double()
    torch.set_default_dtype(torch.float64)
    try:
        right = (model(digits()[0].double()).argmax(1) == digits()[1]).nonzero().flatten()[:40]
        images, labels = digits()[0][right].double(), digits()[1][right]
        theirs = library(model, norm, 100.0, targets=targets, n_iter=iterations).perturb(images, labels)
        # A ball without limit ends at the first adversarial image; one that is a little too small doesn't.
        lengths = sizes(theirs - images, norm)
        reached = lengths > 0
        for factor, expected in ((1 - 1e-7, False), (1 + 1e-7, True)):
            for row in reached.nonzero().flatten().tolist()[:6]:
                attack = make(
                    targets,
                    epsilon=float(lengths[row]) * factor,
                    norm=norm,
                    iterations=iterations,
                    restarts=1,
                )
                found = drive(attack, model, images[row : row + 1], labels[row : row + 1])
                assert bool(found.broken) is expected
                if expected:
                    torch.testing.assert_close(found.best, theirs[row : row + 1], rtol=0, atol=1e-9)
        assert int(reached.sum()) > 20
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("norm", "epsilon"), BALLS)
@pytest.mark.parametrize("targets", [3, None], ids=["fab_t", "fab"])
def test_batches_do_not_matter_and_seeds_do(norm: Norm, epsilon: float, targets: int | None) -> None:
    model = copy.deepcopy(network("fgsm-trained")).double()
    images, labels = digits()[0][:20].double(), digits()[1][:20]
    attack = make(targets, epsilon=epsilon, norm=norm, iterations=8, restarts=2)
    runs = [drive(attack, model, images, labels, batch_size=size) for size in (1, 7, 64, 64)]
    other = drive(attack, model, images, labels, randomness=Randomness(1, attack.name))
    for found in runs[1:]:
        for key in ("broken", "forward", "backward"):
            assert torch.equal(getattr(found, key), getattr(runs[0], key))
        torch.testing.assert_close(found.best, runs[0].best, rtol=0, atol=1e-9)
    assert torch.equal(runs[2].best, runs[3].best)
    robust = ~runs[0].broken & ~other.broken
    assert robust.any()
    assert (sizes(runs[0].best - images, norm) <= epsilon).all()


def test_passes() -> None:
    """A slot that doesn't break: two forward passes and one gradient in each iteration."""
    model, images, labels = network("undefended"), digits()[0][:5], digits()[1][:5]
    for attack, backward in (
        (fab_t(epsilon=1e-6, iterations=5, targets=9, restarts=2), 5 * 9 * 2),
        (fab_t(epsilon=1e-6, iterations=5, targets=100), 5 * 9),
        (fab(epsilon=1e-6, iterations=5, restarts=2), 5 * 2 * 10),
    ):
        found = drive(attack, model, images, labels)
        assert not found.broken.any()
        assert set(found.backward.tolist()) == {backward}
        assert set(found.forward.tolist()) == {2 * backward // (10 if attack.name == "fab" else 1)}


class Linear(nn.Module):
    """Two classes: class 0 where the weighted sum of an image (1, 2, 2) is positive."""

    weights = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)

    def forward(self, images: Tensor) -> Tensor:
        score = images.flatten(1) @ self.weights
        return torch.stack([score, -score], dim=1)


@pytest.mark.parametrize("targets", [5, None], ids=["fab_t", "fab"])
def test_a_linear_model_breaks_exactly_where_its_margin_ends(targets: int | None) -> None:
    # The score is 0.5 * 2.5 = 1.25. A Linf step changes it by 6.5 per unit, an L2 step by |w| = sqrt(14.25).
    images, labels = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    for norm, distance in (("Linf", 1.25 / 6.5), ("L2", 1.25 / 14.25**0.5)):
        for factor in (0.99, 1.01):
            attack = make(targets, epsilon=distance * factor, norm=norm, iterations=30, restarts=1, eta=1.005)
            assert bool(drive(attack, Linear(), images, labels).broken) is (factor > 1)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_without_a_box_nothing_is_clipped(norm: Norm) -> None:
    images, labels = torch.full((1, 1, 2, 2), 0.05, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    for backend in ("native", "pyautoattack"):
        attack = fab_t(epsilon=1.0, norm=norm, iterations=5, eta=5.0, backend=backend)
        found = drive(attack, Linear(), images, labels, box=None)
        assert found.broken.all()
        assert found.best.min() < -0.01


def test_the_library_as_a_backend() -> None:
    model, images, labels = network("undefended"), digits()[0][:60], digits()[1][:60]
    for name, targets in (("fab_t", 3), ("fab", None)):
        state = torch.random.get_rng_state()
        found, compatible = (
            drive(
                make(targets, epsilon=0.1, iterations=8, restarts=2, backend=backend), model, images, labels
            )
            for backend in ("pyautoattack", "compatible")
        )
        assert torch.equal(torch.random.get_rng_state(), state)
        assert torch.equal(found.broken, compatible.broken), name
        assert 0 < int(found.broken.sum()) < 60
