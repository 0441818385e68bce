"""Projected steepest ascent on a loss: the kernel of PGD.

Step for step the arithmetic of cleverhans 4.0: x' = clip(x + step * direction), then x0 + project(x' - x0),
then clip again. Deviations: the loss is summed, not averaged; a gradient that is not finite counts as zero;
the last step costs no backward pass.

Where an iterate repeats an earlier one of its restart, bit for bit, so do all later ones (`cycle_detection`).
Where every iterate counts, the restart ends. Where only the last one counts, whole turns of the cycle are
skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.cycle_detection import compare, watch, watch_again, whole_turns
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.expectation import SINGLE, Expectation
from assay.attacks.kernel import Examples, Forward, Setting, State, begin, no_plateau, record
from assay.attacks.passes import evaluate
from assay.attacks.sending import sent
from assay.attacks.threat import Ball, as_column, clip_to, steepest

# Where final iterates count, no other code waits for the device at every step.
STEPS_BETWEEN_SKIPS = 16
# An attack whose loss still rises in this last part of its steps would find more with more steps.
LAST_PART = 10


@dataclass(frozen=True)
class Ascent:
    """Ascends from the image or from a random start, several times over if asked to.

    With cycle detection the state has its keys and, on the device, `settled`: the last restart is in a cycle
    and every iterate of it was evaluated.
    """

    name: str
    ball: Ball
    goal: Goal
    step_size: float
    steps: int
    restarts: int = 1
    random_start: bool = False
    cycle_detection: bool = False
    expectation: Expectation = SINGLE
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots: at the image, or at the first random start."""
        goal = self.goal.choose(setting, examples)
        restart = torch.zeros_like(examples.rows)
        first = self._first_iterate(setting, examples.rows, restart, examples.images)
        state = begin(examples, goal, first, targeted=self.goal.targeted) | {"plateau": no_plateau(examples)}
        if self.cycle_detection:
            state |= watch(first) | {"settled": torch.zeros_like(state["broken"])}
        return state

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates; moves on, begins the next restart, or ends."""
        every = not setting.final_iterate
        if self.cycle_detection:
            self._cut_short(setting, state, every)
        final = state["iteration"] >= self.steps
        objective = self.goal.objective(state["goal"])
        logits, values, gradient = evaluate(model, state, objective, ~final, self.expectation)
        if every or bool(final.any()):
            record(setting, state, logits, values, torch.ones_like(final) if every else final)
            self._note_plateau(state)
        if not final.all():
            self._move(setting, state, gradient, ~final)
            if self.cycle_detection:
                self._compare(state, ~final, every)
        if final.any():
            self._begin_again(setting, state, final)

    def _note_plateau(self, state: State) -> None:
        there = state["iteration"] == self.steps - self.steps // LAST_PART
        if self.steps >= LAST_PART and there.any():
            now = sent(there, state["objective"])
            state["plateau"] = torch.where(now, state["objective"], state["plateau"])

    def _move(self, setting: Setting, state: State, gradient: Tensor, moving: Tensor) -> None:
        images, points = state["images"], state["adversarial"]
        ascended = clip_to(points + self.step_size * self._direction(setting, state, gradient), setting.box)
        moved = clip_to(images + self.ball.project(ascended - images), setting.box)
        chosen = as_column(sent(moving, images), images)
        state["adversarial"] = torch.where(chosen, moved, points)
        state["iteration"] += moving

    def _direction(self, setting: Setting, state: State, gradient: Tensor) -> Tensor:
        return steepest(gradient, self.ball.norm)

    def _begin_again(self, setting: Setting, state: State, final: Tensor) -> None:
        state["restart"] += final
        state["done"] |= final & (state["restart"] >= self.restarts)
        again = (final & ~state["done"]).nonzero().flatten()
        if len(again) == 0:
            return
        state["iteration"][again] = 0
        index = sent(again, state["images"])
        first = self._first_iterate(
            setting, state["row"][again], state["restart"][again], state["images"][index]
        )
        state["adversarial"] = state["adversarial"].index_copy(0, index, first)
        if self.cycle_detection:
            watch_again(state, index, first)

    def _compare(self, state: State, moved: Tensor, every: bool) -> None:
        compare(state, moved)
        if every:
            last = state["restart"] + 1 >= self.restarts
            state["settled"] = (state["period"] > 0) & sent(last, state["period"])

    def _cut_short(self, setting: Setting, state: State, every: bool) -> None:
        if every:
            others = state["restart"] + 1 < self.restarts
            if others.any():
                # The engine has just waited for the device: this copies a few bytes and waits for nothing.
                self._begin_again(setting, state, others & (state["period"] > 0).cpu())
            return
        left = self.steps - state["iteration"]
        due = (left > 0) & (state["iteration"] > 0) & (state["iteration"] % STEPS_BETWEEN_SKIPS == 0)
        if due.any():
            state["iteration"] += whole_turns(state, left) * due

    def _first_iterate(self, setting: Setting, rows: Tensor, restart: Tensor, images: Tensor) -> Tensor:
        if not self.random_start:
            return images
        draws = setting.draw("uniform", rows, images, restart=restart.tolist())
        return clip_to(images + self.ball.cube_start(draws), setting.box)
