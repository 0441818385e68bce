"""Contract between attacks and the engine that runs them, and code shared by all gradient attacks.

An attack is a state machine over slots. The engine starts it on some examples, calls `step` until a slot is
broken or done, takes that slot out and puts another example in. Everything is in the state, a dictionary of
tensors with slots as the first dimension: states are selected by index and concatenated, and slots can be at
different steps and restarts.

Keys of every state (`begin` makes them; attacks add their own):

    on the CPU, known without asking the device
        row           index of the example in `Setting.ids`
        iteration     gradient steps taken in the current restart
        restart       index of the current restart
        done          the budget is used up
        seen_gradient a gradient has been inspected
        refused       how often the second judgement refused a success of the slot, which then went on
    on the device of the images
        images        the unattacked images, (B, C, H, W)
        adversarial   the current iterate
        goal          the class whose loss is raised or (targeted) lowered
        truth         the class that counts as correct
        best          the iterate that counts, its objective, and its logits, (B, classes):
        objective, logits
        broken        an iterate was misclassified (never set when only the final iterate counts)
        demand        by how much a wrong logit has to exceed the true one; 0 until a success is refused,
                      float64 (B,)
        plateau       optional: the objective of the iterate that counts before the last tenth of the steps,
                      float64 (B,), NaN before that
        settled       optional: the search is exhausted, though budget is left
        astray        optional, in targeted attacks: an iterate was misclassified, though not as the target;
                      `broken` then means that the target was hit
        accuracy      optional, where expected accuracy counts: share of the right answers at the current
                      iterate, float64 (B,), NaN before it was asked; `broken` is then never set
        lowest        with it: the same at the iterate that counts
        stalled       optional: the current restart is over, though the host may not know it yet
    unjudged      optional (CPU): the model has not been run on `best` yet; the engine does so on removal
        forward, backward         model passes so far
        zero_gradient, nonfinite_gradient      flags of the first gradient

The iterate that counts is the first misclassified one, else the one with the highest objective. With a
target, only an iterate classified as it ends the slot; until then the misclassified one with the highest
objective counts. Where expected accuracy counts it is the iterate with the fewest right answers. Attacks that
minimise the perturbation keep the smallest adversarial; their slots end with `done`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, Unpack, runtime_checkable

import torch
from torch import Tensor, nn

from assay.attacks.expectation import Expectation, lower
from assay.attacks.judgement import judge, right, wrong_by
from assay.attacks.randomness import Key, Randomness
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS, Ball, Box, as_column

Forward = Callable[[Tensor], Tensor]
"""The attacked model: images (B, C, H, W) to logits (B, classes)."""

Objective = Callable[[Tensor], Tensor]
"""Objective of an attack: logits (B, classes) to values (B,), each from its own row only."""

State = dict[str, Tensor]


@dataclass(frozen=True)
class Setting:
    """Constants of a run, shared by all slots."""

    ids: Sequence[str]  # Example ids; `state["row"]` is an index into them
    randomness: Randomness  # Source of the random draws
    box: Box | None = PIXELS  # Range of valid image values; None for the `paper` protocol, which doesn't clip
    # Only the last iterate of each restart counts and nothing stops early (`paper`)
    final_iterate: bool = False
    # The engine runs the model once more on the iterate that counts; an attack with a single iterate may then
    # leave it unjudged
    second_judgement: bool = False

    def ids_of(self, rows: Tensor) -> list[str]:
        """Example ids of these rows."""
        return [self.ids[row] for row in rows.tolist()]

    def draw(
        self, law: Literal["uniform", "normal"], rows: Tensor, images: Tensor, **key: Unpack[Key]
    ) -> Tensor:
        """Random numbers for every value of the images, whose examples are these rows."""
        source = self.randomness.uniform if law == "uniform" else self.randomness.normal
        shape = tuple(images.shape[1:])
        return source(self.ids_of(rows), shape, dtype=images.dtype, device=images.device, **key)


class Examples(NamedTuple):
    """Examples to attack."""

    rows: Tensor  # Index of each in `Setting.ids`, on the CPU, (B,)
    images: Tensor  # (B, C, H, W)
    labels: Tensor  # The class whose loss an untargeted attack raises, (B,)
    # The class that counts as correct, (B,); differs from `labels` only in the `paper` protocol
    truth: Tensor
    logits: Tensor  # The model's logits for the images, (B, classes)
    # The gradient taken in the same pass, for an attack `WithFirstGradient`; like the images
    gradient: Tensor | None = None


class Attack(Protocol):
    """Attack on a classifier: its parameters, and how to start and advance slots. Stateless."""

    @property
    def name(self) -> str:
        """Catalog name; random draws are keyed by it."""

    @property
    def backend(self) -> str:
        """`native`, or the library that does the work."""

    @property
    def gradient(self) -> bool:
        """Whether the attack uses gradients."""

    @property
    def ball(self) -> Ball | None:
        """The allowed perturbations; None if their size is unbounded or minimised by the attack."""

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of a slot per example, with the first iterate in place."""

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Does one unit of work for every slot, in place. Called without autograd recording."""


@runtime_checkable
class WithFirstGradient(Attack, Protocol):
    """Attack whose only gradient is at the images: the clean pass can compute it, `Examples.gradient`."""

    def first_objective(self, setting: Setting, examples: Examples) -> Objective:
        """Objective differentiated at the images; each value may depend only on its own row of the logits."""


@runtime_checkable
class WithExpectation(Attack, Protocol):
    """Attack for models that answer at random."""

    @property
    def expectation(self) -> Expectation:
        """The passes at each iterate, and what counts."""


def select(state: State, keep: Tensor) -> State:
    """Slots at these indices (or under this mask), in that order. `keep` is on the CPU."""
    index = keep.nonzero().flatten() if keep.dtype == torch.bool else keep
    moved = sent(index, state["images"])
    return {key: values[index if values.device.type == "cpu" else moved] for key, values in state.items()}


def concatenate(states: Sequence[State]) -> State:
    """Concatenates the slots of several states."""
    return {key: torch.cat([state[key] for state in states]) for key in states[0]}


def begin(examples: Examples, goal: Tensor, adversarial: Tensor, *, targeted: bool = False) -> State:
    """Initial state common to all attacks, from the first iterates, like the images.

    The goal (B,) is the class whose loss is raised or, if `targeted`, lowered; then slots have `astray`.
    """
    n, device = len(examples.rows), examples.images.device

    def host(dtype: torch.dtype) -> Tensor:
        return torch.zeros(n, dtype=dtype)

    def slots(dtype: torch.dtype) -> Tensor:
        return torch.zeros(n, dtype=dtype, device=device)

    return {
        "row": examples.rows,
        "iteration": host(torch.int64),
        "restart": host(torch.int64),
        "done": host(torch.bool),
        "seen_gradient": host(torch.bool),
        "refused": host(torch.int64),
        "images": examples.images,
        "adversarial": adversarial,
        "goal": goal,
        "truth": examples.truth,
        "best": examples.images,
        # NaN compares below everything: the first eligible iterate counts.
        "objective": torch.full((n,), torch.nan, dtype=torch.float64, device=device),
        "logits": examples.logits,
        "broken": slots(torch.bool),
        "demand": slots(torch.float64),
        "forward": slots(torch.int64),
        "backward": slots(torch.int64),
        "zero_gradient": slots(torch.bool),
        "nonfinite_gradient": slots(torch.bool),
        **({"astray": slots(torch.bool)} if targeted else {}),
    }


def no_plateau(examples: Examples) -> Tensor:
    """Initial value of a state's `plateau`, (B,)."""
    return torch.full((len(examples.rows),), torch.nan, dtype=torch.float64, device=examples.images.device)


def unconverged(state: State) -> Tensor:
    """Unbroken slots whose objective rose by more than 5 % and 0.01 in the last tenth, (B,)."""
    if "plateau" not in state:
        return torch.zeros_like(state["broken"])
    before = state["plateau"]
    rise = state["objective"] - before
    return ~state["broken"] & (rise > 0.01) & (rise > 0.05 * before.abs())


def record(
    setting: Setting, state: State, logits: Tensor, values: Tensor, counts: Tensor | None = None
) -> None:
    """Judges the current iterates and keeps those that count; slots that are broken stay unchanged.

    Logits are (B, classes), the objective `values` and `counts`, the slots whose iterate may count (None for
    all), are (B,).
    """
    passed, worse = state["broken"], values <= state["objective"]
    if counts is not None:
        passed = passed | ~sent(counts, values)
    if "accuracy" in state:
        better = ~passed & lower(state["accuracy"], values, state["lowest"], state["objective"])
        state["lowest"] = torch.where(better, state["accuracy"], state["lowest"])
        keep(state, logits, values, better)
        return
    if not setting.final_iterate:
        holds = right(logits, state["truth"])
        if state["refused"].any():
            holds = holds | (wrong_by(logits, state["truth"]) < state["demand"])
        if "astray" in state:
            _keep_nearest(state, logits, values, passed, ~holds)
            return
        worse &= holds
        state["broken"] = state["broken"] | ~(passed | holds)
    keep(state, logits, values, ~(passed | worse))


def _keep_nearest(state: State, logits: Tensor, values: Tensor, passed: Tensor, wrong: Tensor) -> None:
    """Keeps the iterates of a targeted attack that count; `wrong` are those that are misclassified, (B,)."""
    wrong = wrong & ~passed
    hit = wrong & right(logits, state["goal"])
    higher = ~(passed | (values <= state["objective"]))
    better = hit | torch.where(state["astray"], wrong & higher, wrong | higher)
    state["broken"] = state["broken"] | hit
    state["astray"] = state["astray"] | wrong
    keep(state, logits, values, better)


def keep(state: State, logits: Tensor, values: Tensor, better: Tensor) -> None:
    """Makes the current iterate count, in the slots `better`, bool (B,).

    For attacks that minimise the perturbation; `record` chooses the slots itself. Logits are (B, classes),
    the objective `values` (B,).
    """
    if better.device.type == "cpu" and not better.any():
        return  # on a GPU this check would synchronise
    found = {"best": state["adversarial"], "objective": values, "logits": logits}
    for key, present in found.items():
        state[key] = torch.where(as_column(better, present), present, state[key])


def judged(state: State) -> State:
    """Adds the fields of a `Verdict` on the iterates that count to the state."""
    return state | judge(state["logits"], state["truth"])._asdict()


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Puts a model in eval mode with `requires_grad` off; restores both on exit."""
    modes = [(module, module.training) for module in model.modules()]
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.eval()
    model.requires_grad_(False)
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, requires_grad in wanted:
            parameter.requires_grad_(requires_grad)
