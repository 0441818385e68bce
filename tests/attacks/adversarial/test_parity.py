"""Our FGSM, PGD and noise against cleverhans 4.0.0 itself, and against stored outputs of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cleverhans.torch.attacks.fast_gradient_method import fast_gradient_method
from cleverhans.torch.attacks.noise import noise
from cleverhans.torch.attacks.projected_gradient_descent import projected_gradient_descent
from torch import Tensor, nn

from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.adversarial.uniform_noise import uniform_noise
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Box, Norm

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "attacks_cleverhans.npz"
ORDER = {"Linf": float("inf"), "L2": 2}
# After 15 steps, each rounded; how, depends on the instruction set: up to 1.1e-6 was seen.
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-12}
BOXES: dict[str, Box | None] = {"pixel": (0.0, 1.0), "unclipped": None}


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def case(
    request: pytest.FixtureRequest,
    digits: tuple[Tensor, Tensor],
    network: nn.Module,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[nn.Module, Tensor, Tensor]:
    """Model, images and labels in one dtype. The library casts to `torch.float`: let that be the dtype."""
    dtype = request.param
    monkeypatch.setattr(torch, "float", dtype)
    images, labels = digits
    return copy.deepcopy(network).to(dtype), images[:100].to(dtype), labels[:100]


def start_at(draws: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the library's random start use these draws from [0, 1)."""

    def uniform(tensor: Tensor, low: float, high: float) -> Tensor:
        return tensor.copy_(low + (high - low) * draws)

    monkeypatch.setattr(torch.Tensor, "uniform_", uniform)


def draws_of(name: str, images: Tensor) -> Tensor:
    ids = [f"digit-{row}" for row in range(len(images))]
    return Randomness(0, name).uniform(ids, tuple(images.shape[1:]), dtype=images.dtype)


def bounds(box: Box | None) -> dict[str, float]:
    return {} if box is None else {"clip_min": box[0], "clip_max": box[1]}


def rounding(model: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Bound on rounding effects in an attack along normalized gradients, (B, 1, 1, 1).

    The gradient of an example of confidence p is a difference of numbers near 1, which leaves 1 - p: its
    direction has an error of about a unit in the last place over 1 - p. Up to 3.3 times that was seen.
    """
    p = model.double()(images.double()).softmax(1).gather(1, labels[:, None])[:, 0].detach()
    model.to(images.dtype)
    return (10 * epsilon * torch.finfo(images.dtype).eps / (1 - p))[:, None, None, None]


def assert_same(
    model: nn.Module, ours: Tensor, theirs: Tensor, labels: Tensor, more: Tensor | None = None
) -> None:
    theirs = theirs.detach()
    allowed = TOLERANCE[ours.dtype] + (0 if more is None else more)
    assert ((ours - theirs).abs() <= allowed).all()
    flags = [model(images).argmax(1) == labels for images in (ours, theirs)]
    assert torch.equal(*flags)
    assert 0 < int(flags[0].sum()) < len(labels), "an epsilon that breaks some and not all"


@pytest.mark.sampled
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.08), ("L2", 0.6)])
def test_fgsm(case: Any, run: Any, norm: Norm, epsilon: float, box: Box | None) -> None:
    model, images, labels = case
    state = run(fgsm(epsilon=epsilon, norm=norm), model, images, labels, box=box)
    theirs = fast_gradient_method(model, images, epsilon, ORDER[norm], y=labels, **bounds(box))
    more = rounding(model, images, labels, epsilon) if norm == "L2" else None
    assert_same(model, state["best"], theirs, labels, more)
    assert torch.equal(state["broken"], model(theirs).argmax(1) != labels)


@pytest.mark.sampled
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize("random_start", [True, False], ids=["random", "image"])
@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.05), ("L2", 0.5)])
def test_pgd(
    case: Any,
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    norm: Norm,
    epsilon: float,
    random_start: bool,
    box: Box | None,
) -> None:
    model, images, labels = case
    attack = pgd(epsilon=epsilon, norm=norm, steps=15, random_start=random_start)
    state = run(attack, model, images, labels, box=box, final_iterate=True)
    start_at(draws_of("pgd", images), monkeypatch)
    theirs = projected_gradient_descent(
        model,
        images,
        epsilon,
        0.15 * epsilon,
        15,
        ORDER[norm],
        y=labels,
        rand_init=random_start,
        sanity_checks=False,
        **bounds(box),
    )
    more = rounding(model, images, labels, epsilon) if norm == "L2" else None
    assert_same(model, state["best"], theirs, labels, more)


def test_targeted_pgd(case: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, labels = case
    attack = pgd(epsilon=0.1, steps=15, targeted=True, target="next")
    state = run(attack, model, images, labels, final_iterate=True)
    start_at(draws_of("pgd", images), monkeypatch)
    target = (labels + 1) % 10
    theirs = projected_gradient_descent(
        model, images, 0.1, 0.015, 15, ORDER["Linf"], 0.0, 1.0, target, targeted=True, sanity_checks=False
    )
    assert_same(model, state["best"], theirs, labels)


def test_noise(case: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, labels = case
    state = run(uniform_noise(epsilon=0.5), model, images, labels)
    start_at(draws_of("uniform_noise", images), monkeypatch)
    theirs = noise(images, 0.5, ORDER["Linf"], 0.0, 1.0)
    # The library draws its noise in float32 for images of any dtype.
    torch.testing.assert_close(state["best"], theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["fgsm", "pgd", "pgd_l2", "uniform_noise"])
def test_the_library_as_a_backend_does_the_same(
    name: str, digits: tuple[Tensor, Tensor], network: nn.Module, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = digits[0][:100], digits[1][:100]
    if name == "pgd_l2":  # the direction of a gradient is not settled in float32: see `rounding`
        monkeypatch.setattr(torch, "float", torch.float64)
        network, images = copy.deepcopy(network).double(), images.double()
    make: dict[str, Any] = {
        "fgsm": lambda backend: fgsm(epsilon=0.08, backend=backend),
        "pgd": lambda backend: pgd(epsilon=0.05, restarts=2, cycle_detection=False, backend=backend),
        "pgd_l2": lambda backend: pgd(epsilon=0.5, norm="L2", backend=backend),
        "uniform_noise": lambda backend: uniform_noise(epsilon=0.4, draws=3, backend=backend),
    }
    states = [
        run(make[name](backend), network, images, labels, box=None, final_iterate=True)
        for backend in ("native", "cleverhans")
    ]
    for key in ("best", "objective"):
        torch.testing.assert_close(states[0][key], states[1][key], rtol=1e-5, atol=1e-6)
    for key in ("prediction", "rank", "forward", "backward"):
        assert torch.equal(states[0][key], states[1][key])


class StoredStart(Randomness):
    """Answers with the start that was stored next to an output."""

    def __init__(self, draws: Tensor) -> None:
        super().__init__(0, "pgd")
        self.draws = draws

    def uniform(self, ids: Sequence[str], shape: tuple[int, ...], **_: Any) -> Tensor:
        return self.draws


@pytest.fixture(scope="module")
def stored() -> tuple[dict[str, Any], nn.Module]:
    with np.load(VECTORS) as file:
        vectors = {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.Tanh(), nn.Linear(16, 5))
    names = {"1.weight": "fc1.weight", "1.bias": "fc1.bias", "3.weight": "fc2.weight", "3.bias": "fc2.bias"}
    model.load_state_dict({ours: vectors[f"w.{theirs}"] for ours, theirs in names.items()})
    return vectors, model


def test_stored_network_gives_the_stored_logits(stored: Any) -> None:
    vectors, model = stored
    torch.testing.assert_close(model(vectors["x"]), vectors["logits"], rtol=0, atol=1e-6)
    assert torch.equal(model(vectors["x"]).argmax(1), vectors["y_pred"])


@pytest.mark.parametrize("name", ["fgm", "pgd", "pgd_noinit"])
def test_stored_outputs_are_reproduced(stored: Any, run: Any, name: str) -> None:
    vectors, model = stored
    epsilon = float(vectors["eps"])
    start = StoredStart((vectors["pgd_init"] / epsilon + 1) / 2)
    attack = fgsm(epsilon=epsilon) if name == "fgm" else pgd(epsilon=epsilon, random_start=name == "pgd")
    state = run(
        attack, model, vectors["x"], vectors["y_pred"], box=None, final_iterate=True, randomness=start
    )
    torch.testing.assert_close(state["best"], vectors[name], rtol=0, atol=1e-6)
    assert (state["best"] - vectors["x"]).abs().max() > 0.9 * epsilon
