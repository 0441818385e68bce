"""Contract between attacks and the engine that runs them, and code shared by all gradient attacks.

An attack is a state machine over slots. The engine starts it on some examples, calls `step` until a slot is
broken or done, takes that slot out and puts another example in. An attack keeps everything in its state: a
dictionary of tensors with slots as the first dimension, so that states can be selected by index and
concatenated, and slots of one batch can be at different steps and restarts. The attack object is immutable.

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
        stalled       optional: the current restart is over, though the host may not know it yet
    unjudged      optional (CPU): the model has not been run on `best` yet; the engine does so on removal
        forward, backward         model passes so far
        zero_gradient, nonfinite_gradient      flags of the first gradient

The iterate that counts is the first misclassified one, else the one with the highest objective. Attacks that
minimise the perturbation keep the smallest adversarial instead; their slots end with `done`. The verdict on
an iterate is computed once, when its slot leaves (`judged`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from assay.attacks.judgement import judge, right, wrong_by
from assay.attacks.randomness import Randomness
from assay.attacks.threat import PIXELS, Ball, Box, as_column

Forward = Callable[[Tensor], Tensor]
"""The attacked model: images (B, C, H, W) to logits (B, classes)."""

Objective = Callable[[Tensor], Tensor]
"""Objective of an attack: logits (B, classes) to values (B,), each from its own row only."""

State = dict[str, Tensor]


@dataclass(frozen=True)
class Setting:
    """Constants of a run, shared by all slots.

    Attributes:
        ids: Example ids; `state["row"]` is an index into them.
        randomness: Source of the random draws.
        box: Range of valid image values; None for the `paper` protocol, which doesn't clip.
        final_iterate: Only the last iterate of each restart counts and nothing stops early (`paper`).
        second_judgement: The engine runs the model once more on the iterate that counts; an attack with a
            single iterate may then leave it unjudged.
    """

    ids: Sequence[str]
    randomness: Randomness
    box: Box | None = PIXELS
    final_iterate: bool = False
    second_judgement: bool = False

    def ids_of(self, rows: Tensor) -> list[str]:
        """Example ids of these rows."""
        return [self.ids[row] for row in rows.tolist()]


class Examples(NamedTuple):
    """Examples to attack.

    Attributes:
        rows: Index of each in `Setting.ids`, on the CPU, (B,).
        images: (B, C, H, W).
        labels: The class whose loss an untargeted attack raises, (B,).
        truth: The class that counts as correct, (B,); differs from `labels` only in the `paper` protocol.
        logits: The model's logits for the images, (B, classes).
        gradient: The gradient taken in the same pass, for an attack `WithFirstGradient`; like the images.
    """

    rows: Tensor
    images: Tensor
    labels: Tensor
    truth: Tensor
    logits: Tensor
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
        """Returns the state of one slot per example, with the first iterate in place."""

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Does one unit of work for every slot, in place. Called without autograd recording."""


@runtime_checkable
class WithFirstGradient(Attack, Protocol):
    """Attack whose only gradient is taken at the unattacked images.

    The clean pass can compute that gradient as well; `Examples.gradient` then holds it.
    """

    def first_objective(self, setting: Setting, examples: Examples) -> Objective:
        """Objective differentiated at the images; each value may depend only on its own row of the logits."""


def select(state: State, keep: Tensor) -> State:
    """Slots at these indices (or under this mask), in that order. `keep` is on the CPU."""
    index = keep.nonzero().flatten() if keep.dtype == torch.bool else keep
    moved = index.to(state["images"].device)
    return {key: values[index if values.device.type == "cpu" else moved] for key, values in state.items()}


def concatenate(states: Sequence[State]) -> State:
    """Concatenates the slots of several states."""
    return {key: torch.cat([state[key] for state in states]) for key in states[0]}


def begin(examples: Examples, goal: Tensor, adversarial: Tensor) -> State:
    """Initial state common to all attacks.

    Args:
        examples: The attacked examples.
        goal: The class whose loss is raised or lowered, (B,).
        adversarial: The first iterate, like the images.
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


def evaluate(
    model: Forward, state: State, objective: Objective, wants: Tensor, passes: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs the model on the current iterates, with gradients only for the slots that need one.

    Counts the passes. A non-finite gradient is set to zero; the first gradient of each slot is recorded.

    Args:
        model: The attacked model.
        state: The slots.
        objective: Function to differentiate; it is summed over the slots, and only the iterates receive a
            gradient.
        wants: Which slots need a gradient, on the CPU, (B,).
        passes: Number of passes a gradient is averaged over, for randomised models (expectation over
            transformation). Logits and objective are those of the last pass; slots without a gradient take
            only that one.

    Returns:
        Logits (B, classes), objective (B,) in float64, gradient like the images (zero where not requested).
    """
    wanted = int(wants.sum())
    if wanted == 0:
        logits, values = ask(model, state, objective)
        return logits, values, torch.zeros_like(state["adversarial"])
    points, live = state["adversarial"], _live(state)
    state["forward"] += live
    if wanted == len(wants):
        logits, values, gradient = differentiate(model, points, objective, passes)
    else:
        order = torch.cat([wants.nonzero().flatten(), (~wants).nonzero().flatten()]).to(points.device)
        resting, back = model(points[order[wanted:]]), order.argsort()

        def whole(logits: Tensor) -> Tensor:
            return objective(torch.cat([logits, resting])[back])[order[:wanted]]

        logits, _, moved = differentiate(model, points[order[:wanted]], whole, passes)
        logits = torch.cat([logits, resting])[back]
        values = objective(logits)
        gradient = torch.zeros_like(points).index_copy(0, order[:wanted], moved)
        live = live & wants.to(points.device)
    state["backward"] += live * passes
    if passes > 1:
        state["forward"] += live * (passes - 1)
    return logits, values.double(), note_gradient(state, gradient, wants)


def ask(model: Forward, state: State, objective: Objective) -> tuple[Tensor, Tensor]:
    """Runs the model on the current iterates, without gradients, and counts the pass.

    Returns:
        Logits (B, classes), objective (B,) in float64.
    """
    state["forward"] += _live(state)
    logits = model(state["adversarial"])
    return logits, objective(logits).double()


def _live(state: State) -> Tensor:
    """Slots whose passes count, (B,)."""
    live = ~state["broken"]
    for key in ("settled", "stalled"):
        if key in state:
            live = live & ~state[key]
    return live


def differentiate(
    model: Forward, points: Tensor, objective: Objective, passes: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, objective, and the gradient of the objective's sum with respect to the points.

    A model that knows how many images fit into memory (it has a method `in_parts`) is run in parts. The
    objective always sees all rows; those of other parts are then constants, which gives the same gradient,
    because each value depends only on its own row.

    Args:
        model: The attacked model.
        points: (B, C, H, W).
        objective: Function to differentiate.
        passes: Number of gradients averaged; logits and objective are those of the last pass.

    Returns:
        Logits (B, classes), objective (B,), gradient like the points.
    """
    in_parts = getattr(model, "in_parts", None)
    rows = torch.arange(len(points), device=points.device)

    def part(chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            moving = points[chosen].detach() if len(chosen) < len(rows) else points.detach()
            moving.requires_grad_(True)
            total = moving
            for number in range(passes):
                logits = model(moving)
                if len(chosen) == len(rows):
                    values = objective(logits)
                else:
                    others = logits.new_zeros(len(rows), logits.shape[1])
                    values = objective(others.index_copy(0, chosen, logits))[chosen]
                (gradient,) = torch.autograd.grad(values.sum(), moving)
                total = gradient if number == 0 else total + gradient
        return logits.detach(), values.detach(), total if passes == 1 else total / passes

    parts: list[tuple[Tensor, Tensor, Tensor]] = [part(rows)] if in_parts is None else in_parts(rows, part)
    if len(parts) == 1:
        return parts[0]
    logits, values, gradient = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
    return logits, values, gradient


def note_gradient(state: State, gradient: Tensor, wanted: Tensor) -> Tensor:
    """Flags zero or non-finite first gradients; returns the gradient with non-finite entries set to zero.

    Args:
        state: The slots.
        gradient: Like the images.
        wanted: Slots that requested it, on the CPU, (B,).
    """
    first = wanted & ~state["seen_gradient"]
    if first.any():
        fresh = first.to(gradient.device)
        state["zero_gradient"] |= fresh & (gradient == 0).flatten(1).all(1)
        state["nonfinite_gradient"] |= fresh & ~gradient.isfinite().flatten(1).all(1)
        state["seen_gradient"] = state["seen_gradient"] | wanted
    return gradient.nan_to_num(0.0, 0.0, 0.0)


def record(
    setting: Setting, state: State, logits: Tensor, values: Tensor, counts: Tensor | None = None
) -> None:
    """Judges the current iterates and keeps those that count.

    Args:
        setting: Whether a misclassified iterate breaks its slot.
        state: The slots; those already broken stay unchanged.
        logits: The model's logits for the current iterates, (B, classes).
        values: Their objective, (B,).
        counts: Slots whose current iterate may count, (B,); None for all.
    """
    passed, worse = state["broken"], values <= state["objective"]
    if counts is not None:
        passed = passed | ~counts.to(values.device)
    if not setting.final_iterate:
        holds = right(logits, state["truth"])
        if state["refused"].any():
            holds = holds | (wrong_by(logits, state["truth"]) < state["demand"])
        worse &= holds
        state["broken"] = state["broken"] | ~(passed | holds)
    keep(state, logits, values, ~(passed | worse))


def keep(state: State, logits: Tensor, values: Tensor, better: Tensor) -> None:
    """Makes the current iterate the one that counts, in the given slots.

    `record` chooses the slots itself; attacks that minimise the perturbation choose them here.

    Args:
        state: The slots.
        logits: The model's logits for the current iterates, (B, classes).
        values: Their objective, (B,).
        better: Slots whose current iterate is kept, bool (B,).
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
