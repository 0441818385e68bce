"""Auto-PGD against AutoAttack's code (pyautoattack) with the same draws, and what the library lacks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from torch import Tensor, nn

from assay.attacks.adversarial.apgd_ce import apgd_ce
from assay.attacks.adversarial.apgd_dlr import apgd_dlr
from assay.attacks.adversarial.apgd_t import apgd_t
from assay.attacks.adversarial.kernels.auto_pgd import windows
from assay.attacks.kernel import (
    Attack,
    Examples,
    Forward,
    Setting,
    State,
    concatenate,
    frozen,
    judged,
    select,
)
from assay.attacks.randomness import LibraryStream, Randomness
from assay.attacks.threat import Norm
from tests.support import networks

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled

N = networks.CONVOLUTIONAL_FROM
ATTACKS: dict[str, Callable[..., Attack]] = {"apgd_ce": apgd_ce, "apgd_dlr": apgd_dlr, "apgd_t": apgd_t}
# Radii that break some examples and not all, of the undefended and of the trained network.
EPSILON = {("usual", "Linf"): 0.1, ("usual", "L2"): 0.6, ("trained", "Linf"): 0.15, ("trained", "L2"): 0.8}

Case = tuple[nn.Module, Tensor, Tensor]


@pytest.fixture(scope="module")
def cases(digits: tuple[Tensor, Tensor]) -> dict[str, Case]:
    """An undefended and an adversarially trained network, with examples that they did not see."""
    pixels, labels = digits
    return {
        name: (networks.network(stored), pixels[:N], labels[:N])
        for name, stored in [("usual", "convolutional"), ("trained", "convolutional-fgsm-trained")]
    }


def drive(
    attack: Attack, case: Case, randomness: Randomness, *, slots: int = N, model: Forward | None = None
) -> State:
    """Attacks what is classified right, in order, and refills free slots; sorted by row."""
    network, images, labels = case
    model = model or network
    setting = Setting([f"digit-{row}" for row in range(len(images))], randomness)
    finished: list[State] = []
    state: State | None = None
    with torch.no_grad(), frozen(network):
        logits = model(images)
        waiting = (logits.argmax(1) == labels).nonzero().flatten()
        while len(waiting) or state is not None:
            free = slots - (0 if state is None else len(state["row"]))
            rows, waiting = waiting[:free], waiting[free:]
            if len(rows):
                started = attack.start(
                    setting, Examples(rows, images[rows], labels[rows], labels[rows], logits[rows])
                )
                state = started if state is None else concatenate([state, started])
            assert state is not None
            attack.step(setting, model, state)
            out = state["done"] | state["broken"]
            finished.append(judged(select(state, out)))
            state = None if out.all() else select(state, ~out)
    found = concatenate(finished)
    return select(found, found["row"].argsort())


def library(name: str, model: Forward, **parameters: Any) -> Any:
    if name == "apgd_t":
        return APGDAttack_targeted(model, seed=0, **parameters)
    return APGDAttack(model, seed=0, loss=name.removeprefix("apgd_"), **parameters)


@pytest.mark.parametrize("trained", ["usual", "trained"])
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_examples_break_as_in_the_library(
    cases: dict[str, Case], name: str, norm: Norm, trained: str
) -> None:
    case, epsilon = cases[trained], EPSILON[trained, norm]
    model, images, labels = case
    # Targets are tried one after the other, so that shorter runs show the same.
    steps = 40 if name == "apgd_t" else 100
    attack = ATTACKS[name](epsilon=epsilon, norm=norm, steps=steps, backend="compatible")
    state = drive(attack, case, LibraryStream(0))
    theirs = library(name, model, eps=epsilon, norm=norm, n_iter=steps).perturb(images, labels)
    with torch.no_grad():
        right = model(images).argmax(1) == labels
        robust = model(theirs).argmax(1) == labels
    assert torch.equal(state["row"], right.nonzero().flatten())
    assert torch.equal(~state["broken"], robust[right])
    assert 0 < int(robust.sum()) < int(right.sum())


def test_restarts_draw_like_the_library(cases: dict[str, Case]) -> None:
    model, images, labels = cases["trained"]
    attack = apgd_ce(epsilon=0.15, steps=10, restarts=4, backend="compatible")
    state = drive(attack, cases["trained"], LibraryStream(0))
    theirs = library("apgd_ce", model, eps=0.15, n_iter=10, n_restarts=4).perturb(images, labels)
    with torch.no_grad():
        robust = model(theirs).argmax(1) == labels
    assert torch.equal(~state["broken"], robust[state["row"]])
    later = state["broken"] & (state["forward"] > 11)
    assert later.any(), "an example that only a later restart breaks"


class Given(Randomness):
    """Returns the same draws for every key."""

    def __init__(self, draws: Tensor) -> None:
        super().__init__(0, "given")
        self.draws = draws

    def uniform(self, ids: Any, shape: Any, **_: Any) -> Tensor:
        return self.draws[: len(ids)]

    normal = uniform


@pytest.fixture
def double() -> Iterator[None]:
    """Makes everything that the library creates float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("name", ATTACKS)
def test_the_iterates_are_those_of_the_library(
    cases: dict[str, Case], name: str, norm: Norm, double: None, run: Any
) -> None:
    model, images, labels = cases["trained"]
    model, images = copy.deepcopy(model).double(), images.double()
    with torch.no_grad():
        logits = model(images)
    right = logits.argmax(1) == labels
    images, labels = images[right], labels[right]
    seen: list[tuple[Tensor, Tensor]] = []

    def watched(points: Tensor) -> Tensor:
        answer: Tensor = model(points)
        seen.append((points.detach(), answer.detach()))
        return answer

    torch.manual_seed(3)
    draws = torch.rand(images.shape) if norm == "Linf" else torch.randn(images.shape)
    epsilon = EPSILON["trained", norm]
    theirs = library(name, watched, eps=epsilon, norm=norm, n_iter=60)
    theirs.init_hyperparam(images)
    theirs.y_target = logits[right].scatter(1, labels[:, None], -math.inf).argmax(1)
    torch.manual_seed(3)
    highest, _, loss, _ = theirs.attack_single_run(images, labels)

    extra = {"targets": 1} if name == "apgd_t" else {}
    attack = ATTACKS[name](epsilon=epsilon, norm=norm, steps=60, **extra)
    to_the_end = run(attack, model, images, labels, final_iterate=True, randomness=Given(draws))
    torch.testing.assert_close(to_the_end["best"], highest, rtol=0, atol=1e-9)
    torch.testing.assert_close(to_the_end["objective"], loss, rtol=1e-9, atol=1e-12)

    # The library keeps the last misclassified iterate, we keep the first.
    wrong = torch.stack([answer.argmax(1) != labels for _, answer in seen])
    first = wrong.int().argmax(0)
    points = torch.stack([points for points, _ in seen])[first, torch.arange(len(labels))]
    state = run(attack, model, images, labels, randomness=Given(draws))
    broken = wrong.any(0)
    assert torch.equal(state["broken"], broken)
    assert 0 < int(broken.sum()) < len(labels)
    torch.testing.assert_close(state["best"][broken], points[broken], rtol=0, atol=1e-9)
    assert torch.equal(state["forward"][broken], first[broken] + 1)


class Shaken(nn.Module):
    """Answers differently with each pass: brightness goes up and down, for all images alike."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.calls = 0

    def forward(self, pixels: Tensor) -> Tensor:
        self.calls += 1
        answer: Tensor = self.model(pixels * (1 + 0.1 * math.sin(self.calls)))
        return answer


@pytest.mark.parametrize("name", ["apgd_ce", "apgd_dlr"])
def test_gradients_are_averaged_like_in_the_library(cases: dict[str, Case], name: str) -> None:
    model, images, labels = cases["trained"]
    attack = ATTACKS[name](epsilon=0.15, steps=20, eot=3, judgement="single_draw", backend="compatible")
    state = drive(attack, cases["trained"], LibraryStream(0), model=Shaken(model))
    theirs = library(name, Shaken(model), eps=0.15, n_iter=20, eot_iter=3)
    adversarial = theirs.perturb(images, labels)
    rows = state["row"]
    # The library hands back the unattacked image where it found nothing.
    broken = (adversarial != images).flatten(1).any(1)[rows]
    assert torch.equal(state["broken"], broken)
    assert 0 < int(broken.sum()) < len(broken)
    assert torch.equal(state["backward"][~broken], torch.full_like(rows[~broken], 20 * 3))
    assert torch.equal(state["forward"][~broken], torch.full_like(rows[~broken], 20 * 3 + 1))


class OneByOne(nn.Module):
    """Rounds the same way in every batch. Auto-PGD compares the losses of points that it visits twice."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.cat([self.model(image) for image in pixels.split(1)])


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("name", ATTACKS)
def test_batches_change_nothing(cases: dict[str, Case], name: str, norm: Norm) -> None:
    model, images, labels = cases["trained"]
    case = OneByOne(copy.deepcopy(model).double()), images[:20].double(), labels[:20]
    extra = {"targets": 2} if name == "apgd_t" else {}
    attack = ATTACKS[name](epsilon=EPSILON["trained", norm], norm=norm, steps=12, restarts=2, **extra)
    whole, *others = (drive(attack, case, Randomness(0, name), slots=slots) for slots in (64, 7, 1))
    assert 0 < int(whole["broken"].sum()) < len(whole["row"])
    for other in others:
        for key in ("row", "broken", "prediction", "forward", "backward"):
            assert torch.equal(whole[key], other[key]), key
        for key in ("best", "objective"):
            torch.testing.assert_close(whole[key], other[key], rtol=0, atol=1e-12)


def test_a_seed_repeats_and_another_one_does_not(cases: dict[str, Case]) -> None:
    attack = apgd_ce(epsilon=0.15, steps=15)
    first, again, other = (drive(attack, cases["trained"], Randomness(seed, "apgd_ce")) for seed in (0, 0, 1))
    assert torch.equal(first["best"], again["best"])
    assert not torch.equal(first["best"], other["best"])


class Noted(Randomness):
    """Notes the keys of its draws."""

    def __init__(self) -> None:
        super().__init__(0, "noted")
        self.keys: list[tuple[int, int]] = []

    def uniform(self, ids: Any, shape: Any, **key: Any) -> Tensor:
        self.keys += zip(key["target"], key["restart"], strict=True)
        return super().uniform(ids, shape, **key)


def test_runs_of_an_example_that_holds_out(cases: dict[str, Case]) -> None:
    model, images, labels = cases["trained"]
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).nonzero().flatten()[:1]
    case, source = (model, images[right], labels[right]), Noted()
    state = drive(apgd_t(epsilon=1e-4, steps=7, targets=3, restarts=2), case, source)
    assert source.keys == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert state["forward"].item() == 6 * 8
    assert state["backward"].item() == 6 * 7
    with torch.no_grad():
        descending = model(images[right]).argsort(1, descending=True)
    assert torch.equal(state["targets"], descending[:, 1:4])


def test_the_windows_of_a_hundred_steps() -> None:
    ends = windows(100)
    assert ends.nonzero().flatten().tolist() == [22, 41, 57, 70, 80, 87, 93, 99]
    assert ends[ends > 0].tolist() == [22, 19, 16, 13, 10, 7, 6, 6]
    assert windows(1).tolist() == [0, 1]


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("name", ATTACKS)
def test_the_library_as_a_backend_does_the_same(cases: dict[str, Case], name: str, norm: Norm) -> None:
    parameters: dict[str, Any] = {
        "epsilon": EPSILON["trained", norm],
        "norm": norm,
        "steps": 20,
        "restarts": 2,
    }
    model, images, labels = cases["trained"]
    case = copy.deepcopy(model).double(), images.double(), labels
    ours, theirs = (
        drive(ATTACKS[name](**parameters, backend=backend), case, Randomness(0, name))
        for backend in ("native", "pyautoattack")
    )
    assert torch.equal(ours["broken"], theirs["broken"])
    assert 0 < int(ours["broken"].sum()) < N
    broken = ours["broken"]
    torch.testing.assert_close(ours["best"][broken], theirs["best"][broken], rtol=0, atol=1e-6)
    robust = ~ours["broken"]
    runs = 9 * 2 if name == "apgd_t" else 2
    assert (ours["forward"][robust] == runs * 21).all()
    assert (ours["backward"][robust] == runs * 20).all()
    # Its last iterate takes a backward pass too, and its result is judged once more.
    assert (theirs["forward"][robust] == runs * 22).all()
    assert (theirs["backward"][robust] == runs * 21).all()
    for key in ("seen_gradient", "zero_gradient", "nonfinite_gradient"):
        assert torch.equal(ours[key], theirs[key])


def test_the_library_as_a_backend_outside_the_unit_interval(cases: dict[str, Case], run: Any) -> None:
    model, images, labels = cases["trained"]
    shifted = nn.Sequential(_Shift(), model)
    attack = apgd_ce(epsilon=0.3, steps=20, backend="pyautoattack")
    ours = apgd_ce(epsilon=0.3, steps=20)
    states = [
        run(kernel, shifted, 2 * images - 1, labels, box=None, final_iterate=True)
        for kernel in (attack, ours)
    ]
    perturbation = states[0]["best"] - (2 * images - 1)
    assert float(perturbation.abs().max()) <= 0.3 + 1e-5
    assert float(states[0]["best"].min()) < -1.2
    agree = (states[0]["prediction"] == states[1]["prediction"]).double().mean()
    assert float(agree) > 0.9


class _Shift(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return (values + 1) / 2


def test_no_step_asks_the_device() -> None:
    """Tensors on the device `meta` have no values: whoever asks for one, fails."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4)).to("meta")
    images, labels = torch.empty(2, 1, 2, 2, device="meta"), torch.empty(2, dtype=torch.int64, device="meta")
    attack, setting = apgd_t(steps=10, targets=2, restarts=2), Setting(["a", "b"], Randomness(0, "apgd_t"))
    with torch.no_grad(), frozen(model):
        state = attack.start(setting, Examples(torch.arange(2), images, labels, labels, model(images)))
        while not state["done"].all():
            attack.step(setting, model, state)
    assert state["target"].tolist() == [1, 1]


@pytest.mark.parametrize("backend", ["native", "pyautoattack"])
@pytest.mark.parametrize(("name", "classes"), [("apgd_t", 3), ("apgd_dlr", 2)])
def test_too_few_classes(name: str, classes: int, backend: str, run: Any) -> None:
    images = torch.rand(2, 1, 2, 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, classes))
    with pytest.raises(ValueError, match=f"there are {classes}"):
        run(ATTACKS[name](backend=backend), model, images, torch.zeros(2, dtype=torch.int64))


def test_no_more_targets_than_wrong_classes(run: Any) -> None:
    images = torch.rand(3, 1, 2, 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 5))
    state = run(apgd_t(steps=2, targets=9, epsilon=0.0), model, images, model(images).argmax(1))
    assert state["targets"].shape == (3, 4)
    assert (state["forward"] == 4 * 3).all()


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"restarts": 0}, {"eot": 0}, {"rho": 1.5}, {"epsilon": -1.0}]
)
def test_values_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|at least|from 0 to 1"):
        apgd_ce(**wrong)
    with pytest.raises(ValueError, match="at least 1"):
        apgd_t(targets=0)


def test_the_library_as_a_backend_averages_gradients(cases: dict[str, Case]) -> None:
    ours, theirs = (
        drive(
            apgd_ce(epsilon=0.15, steps=10, eot=2, judgement="single_draw", backend=backend),
            cases["trained"],
            Randomness(0, "apgd_ce"),
        )
        for backend in ("native", "pyautoattack")
    )
    assert torch.equal(ours["broken"], theirs["broken"])
    robust = ~ours["broken"]
    assert (ours["forward"][robust] == 21).all()
    assert (theirs["forward"][robust] == 23).all()
    assert (theirs["backward"][robust] == 22).all()
