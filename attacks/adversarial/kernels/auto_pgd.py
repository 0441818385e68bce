"""Auto-PGD: gradient ascent with momentum that halves its step size where it stalls.

Croce and Hein 2020, "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-free
Attacks", algorithm 1. With the projection P onto the ball and the pixel range, and the step size s, which
begins at 2 epsilon:

    z       = P(x_k + s direction(gradient))
    x_{k+1} = P(x_k + 0.75 (z - x_k) + 0.25 (x_k - x_{k-1}))          x_1 = z

At checkpoints s is halved and the ascent goes on from the best point so far where the loss rose in at most
rho of the window's steps, or s was kept at the last checkpoint and the best loss did not rise since.

These details are from AutoAttack's code (package pyautoattack): of n steps the windows have 0.22 n, then each
0.03 n less, at least 0.06 n, rounded down (the paper rounds the checkpoints up); "at most rho", not "fewer
than rho"; the first step of a run counts as a rise where its loss is above zero; each run begins at a random
point, in Linf on a face of the cube, in L2 on the sphere.

Deviations from that code, without effect on which examples break: the last iterate takes no backward pass, a
slot goes on to its next target by itself, and the first misclassified iterate is kept (the code keeps the
last). A gradient that is not finite counts as zero.

Every iterate counts, also in the `paper` protocol: there the point with the highest loss of all runs is kept,
and nothing is clipped.

B slots, T targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import doc
from torch import Tensor

from assay.attacks.adversarial.kernels.losses import Loss, Targeted
from assay.attacks.adversarial.kernels.malt import linear_distances, nearest_first
from assay.attacks.expectation import SINGLE, Expectation
from assay.attacks.kernel import Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import evaluate
from assay.attacks.sending import sent
from assay.attacks.threat import Ball, as_column, clip_to

Backend = Annotated[
    Literal["native", "compatible", "pyautoattack"],
    doc("Our kernel with draws of its own, our kernel with the library's draws, or the library."),
]

MOMENTUM = 0.75
TINY = 1e-12


@cache
def windows(steps: int) -> Tensor:
    """How long the window is that ends after each number of steps, or 0; (steps + 1,)."""
    length, shrink, shortest = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    ends = torch.zeros(steps + 1, dtype=torch.int64)
    checkpoint = length
    while checkpoint <= steps:
        ends[checkpoint] = length
        length = max(length - shrink, shortest)
        checkpoint += length
    return ends


@dataclass(frozen=True)
class AutoPGD:
    """Auto-PGD on one loss, for several targets one after the other where the loss has any.

    Keys of the state beside the keys of `begin` and of `run_keys`:

        target        (CPU) number of the present target
        fresh         (CPU) the next step begins a run
        targets       the targets of all runs, (B, T)
        unordered     (CPU) the targets are still candidates, in the order of the logits; only for `malt`
        aim           the present target, (B,)
    """

    name: str
    ball: Ball
    loss: Loss
    steps: int = 100
    restarts: int = 1
    rho: float = 0.75
    expectation: Expectation = SINGLE
    backend: str = "native"
    gradient: ClassVar[bool] = True
    # Whether the best point of a run matters after its last step.
    goes_on: ClassVar[bool] = False

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the first random start."""
        images, n = examples.images, len(examples.rows)
        targets = self.loss.targets(examples.labels, examples.logits)
        late = {"unordered": torch.ones(n, dtype=torch.bool)} if self._candidates else {}
        zero = torch.zeros_like(examples.rows)
        first = self._first_iterate(setting, examples.rows, zero, zero, images)
        return begin(examples, examples.labels, first) | {
            "target": zero.clone(),
            "fresh": torch.zeros(n, dtype=torch.bool),
            "targets": targets,
            "aim": targets[:, 0],
            **run_keys(first),
            **late,
        }

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates; moves on, begins the next run, or ends."""
        if state["fresh"].any():
            self._begin_runs(setting, state)
        if self._candidates and state["unordered"].any():
            self._order(model, state)
        final = state["iteration"] >= self._length(state)
        objective = self.loss.objective(state["goal"], state["aim"])
        logits, values, gradient = evaluate(model, state, objective, ~final, self.expectation)
        record(setting, state, logits, values)
        over = bool(final.any())
        if not over or self.goes_on or not final.all():
            first = state["iteration"] == 0
            begun = sent(first, gradient) if first.any() else None
            remember(state, values, gradient, begun, lambda: self._first_size(state))
            gradient = self._check(state, gradient)
            self._move(setting, state, gradient, begun, ~final if over else None)
        if over:
            self._end_runs(state, final)

    @property
    def _candidates(self) -> int:
        return self.loss.candidates if isinstance(self.loss, Targeted) else 0

    def _order(self, model: Forward, state: State) -> None:
        """Puts the nearest classes of the linear model first: one forward pass, a backward pass for each."""
        slots = state["unordered"].nonzero().flatten()
        index = sent(slots, state["images"])
        images, labels, candidates = (state[key][index] for key in ("images", "goal", "targets"))
        distances = linear_distances(model, images, labels, candidates, self.ball.norm)
        ordered = nearest_first(candidates, distances, candidates.shape[1])
        state["targets"] = state["targets"].index_copy(0, index, ordered)
        state["aim"] = state["aim"].index_copy(0, index, ordered[:, 0])
        state["forward"] = state["forward"].index_add(0, index, torch.ones_like(labels))
        state["backward"] = state["backward"].index_add(
            0, index, torch.full_like(labels, candidates.shape[1])
        )
        state["unordered"] = torch.zeros_like(state["unordered"])

    def _length(self, state: State) -> int | Tensor:
        del state
        return self.steps

    def _windows(self, state: State) -> Tensor:
        """Length of the window that ends at the present step, or 0, on the CPU, (B,)."""
        return windows(self.steps)[state["iteration"]]

    def _first_size(self, state: State) -> Tensor:
        return torch.full_like(state["step_size"], 2 * self.ball.epsilon)

    def _check(self, state: State, gradient: Tensor) -> Tensor:
        ending = self._windows(state)
        if not ending.any():
            return gradient
        window = sent(ending, gradient)
        # In float32, as the library compares.
        few = state["rises"].float() <= (window.double() * self.rho).float()
        return halved_where_it_stalls(state, gradient, window > 0, few)

    def _move(
        self, setting: Setting, state: State, gradient: Tensor, begun: Tensor | None, moving: Tensor | None
    ) -> None:
        images, points = state["images"], state["adversarial"]
        ahead: Tensor | float = MOMENTUM
        if begun is not None:
            ahead = as_column(torch.where(begun, 1.0, MOMENTUM).to(images.dtype), images)
        size = as_column(state["step_size"], images)
        inside = self._into(setting, images)
        ascended = inside(points + size * self._direction(gradient))
        moved = inside(points + (ascended - points) * ahead + (points - state["previous"]) * (1 - ahead))
        if moving is None:
            state["iteration"] += 1
        else:
            moved = torch.where(as_column(sent(moving, images), images), moved, points)
            state["iteration"] += moving
        state["previous"] = points
        state["adversarial"] = moved

    def _direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign() if self.ball.norm == "Linf" else gradient / (_l2(gradient) + TINY)

    def _into(self, setting: Setting, images: Tensor) -> Callable[[Tensor], Tensor]:
        if self.ball.norm == "Linf":
            low = clip_to(images - self.ball.epsilon, setting.box)
            high = clip_to(images + self.ball.epsilon, setting.box)
            return lambda points: points.clamp(low, high)

        def inside(points: Tensor) -> Tensor:
            offset = points - images
            length = _l2(offset)
            near = images + offset / (length + TINY) * length.clamp(max=self.ball.epsilon)
            return clip_to(near, setting.box)

        return inside

    def _end_runs(self, state: State, final: Tensor) -> None:
        state["restart"] += final
        over = state["restart"] == self.restarts
        state["target"] += over
        state["restart"][over] = 0
        count = min(self.loss.count, state["targets"].shape[1]) if isinstance(self.loss, Targeted) else 1
        state["done"] |= state["target"] >= count
        state["target"].clamp_(max=count - 1)
        state["fresh"] = final & ~state["done"]

    def _begin_runs(self, setting: Setting, state: State) -> None:
        """Draws new starts: one step after the last run ended, when slots that it broke have left."""
        again = state["fresh"].nonzero().flatten()
        index = sent(again, state["images"])
        rows, restart, target = (state[key][again] for key in ("row", "restart", "target"))
        first = self._first_iterate(setting, rows, restart, target, state["images"][index])
        for key in ("adversarial", "previous"):
            state[key] = state[key].index_copy(0, index, first)
        place = sent(state["target"], state["targets"])
        state["aim"] = state["targets"].gather(1, place[:, None]).squeeze(1)
        state["iteration"][again] = 0
        state["fresh"] = torch.zeros_like(state["fresh"])

    def _first_iterate(
        self, setting: Setting, rows: Tensor, restart: Tensor, target: Tensor, images: Tensor
    ) -> Tensor:
        law: Literal["uniform", "normal"] = "uniform" if self.ball.norm == "Linf" else "normal"
        draws = setting.draw(law, rows, images, restart=restart.tolist(), target=target.tolist())
        return clip_to(images + self.ball.epsilon * start_direction(draws, self.ball), setting.box)


def run_keys(first: Tensor) -> State:
    """Keys of the state of a run that begins at `first`, (B, ...).

    previous      the iterate before the last move; at the start of a run the iterate itself
    run_best, run_gradient, run_loss      the point with the highest loss of this run
    last_loss     loss of the last iterate, zero for the first one of a run
    rises         how often the loss rose since the last checkpoint
    checked_loss  the highest loss at the last checkpoint
    halved        the last checkpoint halved the step size
    step_size
    """
    level = torch.zeros(len(first), dtype=torch.float64, device=first.device)
    return {
        "previous": first,
        "run_best": first,
        "run_gradient": torch.zeros_like(first),
        "run_loss": level,
        "last_loss": level,
        "rises": torch.zeros_like(level, dtype=torch.int64),
        "checked_loss": level,
        "halved": torch.ones_like(level, dtype=torch.bool),
        "step_size": level.to(first.dtype),
    }


def remember(
    state: State, values: Tensor, gradient: Tensor, begun: Tensor | None, first_size: Callable[[], Tensor]
) -> None:
    """Notes the losses `values` (B,) of the present iterates, in slots `begun` as the first of a run.

    As in the code: the first step of a run counts as a rise if its loss is above zero.
    """
    better, rose = values > state["run_loss"], values > state["last_loss"]
    state["rises"] = state["rises"] + rose
    state["last_loss"] = values
    if begun is not None:
        better = better | begun
        state["rises"] = state["rises"].masked_fill(begun, 0)
        state["last_loss"] = values.masked_fill(begun, 0.0)
        state["checked_loss"] = torch.where(begun, values, state["checked_loss"])
        state["halved"] = state["halved"] | begun
        state["step_size"] = torch.where(begun, first_size(), state["step_size"])
    column = as_column(better, gradient)
    state["run_best"] = torch.where(column, state["adversarial"], state["run_best"])
    state["run_gradient"] = torch.where(column, gradient, state["run_gradient"])
    state["run_loss"] = torch.where(better, values, state["run_loss"])


def halved_where_it_stalls(state: State, gradient: Tensor, due: Tensor, few: Tensor) -> Tensor:
    """At a checkpoint (`due`) goes back to the best point where the loss rose in `few` steps, or stalls.

    Returns the gradients at the points from which to go on.
    """
    stuck = ~state["halved"] & (state["checked_loss"] >= state["run_loss"])
    halve = due & (few | stuck)
    column = as_column(halve, gradient)
    state["step_size"] = torch.where(halve, state["step_size"] / 2, state["step_size"])
    state["adversarial"] = torch.where(column, state["run_best"], state["adversarial"])
    state["halved"] = torch.where(due, halve, state["halved"])
    state["checked_loss"] = torch.where(due, state["run_loss"], state["checked_loss"])
    state["rises"] = state["rises"].masked_fill(due, 0)
    return torch.where(column, state["run_gradient"], gradient)


def start_direction(draws: Tensor, ball: Ball) -> Tensor:
    """Turns draws, uniform in [0, 1) for Linf and normal for L2, into points at distance 1, (B, ...)."""
    if ball.norm == "L2":
        return draws / (_l2(draws) + TINY)
    spread = 2 * draws - 1
    return spread / (as_column(spread.flatten(1).abs().amax(1), spread) + TINY)


def _l2(values: Tensor) -> Tensor:
    return as_column(values.flatten(1).square().sum(1).sqrt(), values)
