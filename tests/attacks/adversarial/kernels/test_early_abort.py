"""Searches of Carlini and Wagner's attack end where their loss no longer falls, each on its own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.adversarial.kernels import early_abort
from assay.attacks.kernel import Attack, Examples, Setting, State, concatenate, frozen
from assay.attacks.randomness import Randomness
from assay.attacks.threat import sizes
from assay.workers.evaluation.engine.attack.slots import run_slots
from tests.attacks.adversarial.batches import drive

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled

OUTCOME = ("best", "objective", "prediction", "loss", "forward", "backward", "broken")
ITERATIONS = 60
QUICK: dict[str, Any] = {
    "searches": 4,
    "iterations": ITERATIONS,
    "learning_rate": 0.05,
    "initial_constant": 0.5,
}
SEARCHES = [{"search": "original"}, {"search": "released", "abort_early": True}]


def begun(attack: Attack, model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Setting, State]:
    setting = Setting([f"digit-{row}" for row in range(len(images))], Randomness(0, attack.name))
    examples = Examples(torch.arange(len(images)), images, labels, labels, model(images))
    return setting, attack.start(setting, examples)


def traced(attack: Any, model: nn.Module, images: Tensor, labels: Tensor) -> list[State]:
    """The state before each step, until every slot has left its first search."""
    setting, state = begun(attack, model, images, labels)
    found: list[State] = []
    with torch.no_grad(), frozen(model):
        while (state["restart"] == 0).any():
            found.append(dict(state) | {key: state[key].clone() for key in ("iteration", "restart")})
            attack.step(setting, model, state)
    return found


def end_by_the_rule(losses: list[float], every: int) -> int:
    """Number of iterates visited in a search, by the rule of the authors' code for one example."""
    before = float("inf")
    for number, loss in enumerate(losses):
        if number % every == 0:
            if loss > 0.9999 * before:
                return number + 1
            before = loss
    return len(losses)


@pytest.fixture
def double(network: nn.Module, digits: tuple[Tensor, Tensor]) -> Any:
    """A network and 24 digits in float64."""
    yield network.double(), digits[0][:24].double(), digits[1][:24]
    network.float()


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_the_first_search_is_that_without_the_test_up_to_where_the_rule_ends_it(
    double: Any, search: dict[str, Any]
) -> None:
    model, images, labels = double
    whole = traced(carlini_wagner(**QUICK | search | {"abort_early": False}), model, images, labels)
    cut = traced(carlini_wagner(**QUICK | search), model, images, labels)
    assert len(whole) == ITERATIONS
    ends = []
    for row in range(len(images)):
        losses, distances = [], []
        for state in whole:
            point = state["adversarial"][row]
            logits = model(point[None])[0].detach()
            own, others = logits[labels[row]], logits[torch.arange(10) != labels[row]].max()
            distances.append(float((point - images[row]).square().sum()))
            losses.append(distances[-1] + 0.5 * max(float(own - others), 0.0))
        ends.append(end_by_the_rule(losses, ITERATIONS // 10))
        mine = [state["adversarial"][row] for state in cut if state["restart"][row] == 0]
        # What the host learns after the iterate is known before the next one.
        assert len(mine) == min(ends[-1] + 1, ITERATIONS)
        for number in range(ends[-1]):
            torch.testing.assert_close(mine[number], whole[number]["adversarial"][row], rtol=0, atol=1e-12)
    assert len(set(ends)) > 3
    assert min(ends) < ITERATIONS // 2
    assert all(end % 6 == 1 for end in ends if end < ITERATIONS)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_it_takes_fewer_passes_to_about_the_same_distances(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any, search: dict[str, Any]
) -> None:
    images, labels = digits[0][:60], digits[1][:60]
    params = QUICK | search | {"iterations": 200}
    whole = run(carlini_wagner(**params | {"abort_early": False}), network, images, labels)
    cut = run(carlini_wagner(**params), network, images, labels)
    assert (cut["forward"] <= whole["forward"]).all()
    assert int(cut["forward"].sum()) < 0.9 * int(whole["forward"].sum())
    far, farther = (sizes(state["best"] - images, "L2").median() for state in (whole, cut))
    assert float(farther) == pytest.approx(float(far), rel=0.03)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_an_example_does_not_depend_on_those_beside_it(double: Any, search: dict[str, Any]) -> None:
    model, images, labels = double
    attack = carlini_wagner(**QUICK | search)
    together, alone = (drive(attack, model, images[:12], labels[:12], batch_size=size) for size in (12, 1))
    assert torch.equal(together.forward, alone.forward)
    assert torch.equal(together.backward, alone.backward)
    torch.testing.assert_close(together.best, alone.best, rtol=0, atol=1e-9)
    assert len(set(together.forward.tolist())) > 3


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_nor_on_when_it_gets_its_slot_and_leaves_it(
    double: Any, monkeypatch: pytest.MonkeyPatch, search: dict[str, Any]
) -> None:
    """Slots are refilled, and host and engine are late, as on a GPU."""
    model, images, labels = double
    attack = carlini_wagner(**QUICK | search | {"searches": 2, "epsilon": 1.0})
    alone = drive(attack, model, images, labels, batch_size=1)
    monkeypatch.setattr(early_abort, "patience", lambda device: 5)
    setting, _ = begun(attack, model, images, labels)
    waiting = list((model(images).argmax(1) == labels).nonzero().flatten().split(4))
    left: list[State] = []

    def take(count: int) -> Examples | None:
        assert count > 0
        if not waiting:
            return None
        rows, rest = waiting[0].split([1, len(waiting[0]) - 1])
        waiting[:1] = [rest] if len(rest) else []
        truth = labels[rows]
        return Examples(rows, images[rows], truth, truth, model(images[rows]))

    with torch.no_grad(), frozen(model):
        run_slots(attack, setting, model, take=take, slots=5, leave=left.append, tell=lambda: None, late=True)
    state = concatenate(left)
    rows = state["row"]
    assert rows.tolist() != sorted(rows.tolist())
    for key in ("forward", "backward", "broken"):
        assert torch.equal(state[key], getattr(alone, key)[rows]), key
    torch.testing.assert_close(state["best"], alone.best[rows], rtol=0, atol=1e-9)
    assert 0 < int(state["broken"].sum()) < len(rows)


@pytest.mark.parametrize("epsilon", [None, 0.6])
@pytest.mark.parametrize("iterations", [47, 9])
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_when_the_host_learns_of_it_changes_nothing(
    double: Any,
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    search: dict[str, Any],
    iterations: int,
    epsilon: float | None,
) -> None:
    model, images, labels = double
    attack = carlini_wagner(**QUICK | search | {"iterations": iterations, "epsilon": epsilon})
    at_once = run(attack, model, images, labels)
    for steps in (7, 10_000):
        monkeypatch.setattr(early_abort, "patience", lambda device, steps=steps: steps)
        late = run(attack, model, images, labels)
        for key in OUTCOME:
            if late[key].is_floating_point():  # passes of other slots round in another way
                torch.testing.assert_close(late[key], at_once[key], rtol=0, atol=1e-12)
            else:
                assert torch.equal(late[key], at_once[key]), key


def test_a_slot_that_is_over_stays_as_it_is(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    """Like all that no engine takes out."""
    images, labels = digits[0][:20], digits[1][:20]
    attack = carlini_wagner(**QUICK, search="original")
    state = run(attack, network, images, labels)
    before = {key: state[key].clone() for key in (*OUTCOME, "settled")}
    setting, _ = begun(attack, network, images, labels)
    with torch.no_grad(), frozen(network):
        for _ in range(2 * ITERATIONS):
            attack.step(setting, network, state)
    assert state["done"].all()
    for key, values in before.items():
        assert torch.equal(state[key], values), key


class Falling(nn.Module):
    """Returns logits with a scripted difference per pass, for any images."""

    def __init__(self, differences: list[float]) -> None:
        super().__init__()
        self.differences = itertools.chain([1.0], differences)

    def forward(self, points: Tensor) -> Tensor:
        difference = torch.full((len(points),), next(self.differences), dtype=points.dtype)
        return torch.stack([difference, 0 * difference], 1) + 0 * points.sum()


@pytest.mark.parametrize(
    ("differences", "iterates"),
    [
        # Looks at the iterates 0, 2, 4, ..., of which only every second one counts.
        ([8.0, 9.0, 7.0, 9.0, 6.0, 9.0, 5.0, 9.0], 20),
        ([8.0, 1.0, 8.0], 3),
        ([8.0, 1.0, 7.9993], 3),
        ([8.0, 1.0, 7.9991, 1.0, 7.9991], 5),
        ([8.0, 1.0, 4.0, 1.0, 3.0, 1.0, 3.5], 7),
        # Even a loss that is enormous at first.
        ([1e9, 1.0, 1e8, 1.0, 1e8], 5),
        ([8.0, 1.0, torch.nan, 1.0, 9.0], 20),
    ],
)
def test_the_rule(differences: list[float], iterates: int) -> None:
    model = Falling([*differences, *(2.0**-number for number in range(30))])
    attack = carlini_wagner(searches=2, iterations=20, initial_constant=1.0, search="original")
    image, label = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64), torch.tensor([0])
    setting, state = begun(attack, model, image, label)
    steps = 0
    with torch.no_grad():
        while not (state["stalled"].any() or state["restart"].any()):
            attack.step(setting, model, state)
            steps += 1
    assert steps == iterates
    assert state["forward"].item() == iterates


@pytest.mark.parametrize(
    ("begun_at", "asked_before"),
    [
        # In step with each other: as soon as there is news, which the first look never is.
        ([0, 0, 0], [21, 41, 61, 81]),
        # Out of step, two of three looks have to wait.
        ([0, -7, -13], [21, 41, 61, 81]),
        ([0, -4, -9, -15], [21, 41, 61, 81]),
        ([-3], [24, 44, 64, 84]),
    ],
)
def test_the_host_asks_after_a_look_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch, begun_at: list[int], asked_before: list[int]
) -> None:
    monkeypatch.setattr(early_abort, "patience", lambda device: 20)
    state = early_abort.watch(torch.zeros(len(begun_at), 1, 1, 1))
    state |= {"iteration": torch.tensor(begun_at), "done": torch.zeros(len(begun_at), dtype=torch.bool)}
    nothing, loss, asked = state["done"], torch.zeros(len(begun_at), dtype=torch.float64), []
    for step in range(100):
        if early_abort.ask(state, 200) is not None:
            asked.append(step)
        early_abort.look(state, loss, 200, nothing)
        state["iteration"] += 1
    assert asked == asked_before


def test_only_the_host_asks_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the device `meta` have no values: whoever asks for one, fails."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).to("meta")
    images, labels = torch.empty(4, 1, 2, 2, device="meta"), torch.empty(4, dtype=torch.int64, device="meta")
    attack = carlini_wagner(searches=2, iterations=30, search="original", epsilon=0.5)
    asked: list[int] = []
    steps = 0

    def answer(flags: Tensor) -> Tensor:
        asked.append(steps)
        return torch.tensor([steps > 20, False, False, False])

    monkeypatch.setattr(early_abort, "_read", answer)
    with torch.no_grad():
        setting, state = begun(attack, model, images, labels)
        while not state["done"].all():
            attack.step(setting, model, state)
            steps += 1
    # In step: both searches have a look just before, and no search has one in its first steps.
    assert asked == [16, 34, 50]
    assert state["restart"].tolist() == [2, 2, 2, 2]
