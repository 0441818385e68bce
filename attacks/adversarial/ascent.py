"""Projected steepest ascent on a loss: the kernel of FGSM and PGD.

Step for step the arithmetic of cleverhans 4.0: x' = clip(x + step * direction), then x0 + project(x' - x0),
then clip again. Deviations: the loss is summed, not averaged (an example's gradient doesn't depend on its
batch); a gradient that is not finite counts as zero; the last step costs no backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attacks.adversarial.goal import Goal
from attacks.kernel import Examples, Forward, Setting, State, begin, evaluate, record
from attacks.threat import Ball, as_column, clip_to, steepest


@dataclass(frozen=True)
class Ascent:
    """Ascends from the image or from a random start, several times over if asked to.

    A step of the kernel evaluates the present iterate of every slot, then moves those with steps left.

    Attributes:
        name: Name of the attack.
        ball: The perturbations that are allowed.
        goal: The loss.
        step_size: Length of a step, in the ball's norm.
        steps: Gradient steps in one restart.
        restarts: How often to begin anew.
        random_start: Begin at a random perturbation instead of the image itself.
        every_iterate: Whether all iterates count, or only the last of each restart.
    """

    name: str
    ball: Ball
    goal: Goal
    step_size: float
    steps: int
    restarts: int = 1
    random_start: bool = False
    every_iterate: bool = True
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    def start(self, setting: Setting, examples: Examples) -> State:
        """Returns the state of new slots: at the image, or at the first random start."""
        goal = self.goal.choose(setting, examples)
        restart = torch.zeros_like(examples.rows)
        first = self._first_iterate(setting, examples.rows, restart, examples.images)
        return begin(examples, goal, first)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates; moves on, begins the next restart, or ends."""
        final = state["iteration"] >= self.steps
        logits, values, gradient = evaluate(model, state, self.goal.objective(state["goal"]), ~final)
        every = self.every_iterate and not setting.final_iterate
        if every or bool(final.any()):
            record(setting, state, logits, values, torch.ones_like(final) if every else final)
        if not final.all():
            self._move(setting, state, gradient, ~final)
        if final.any():
            self._begin_again(setting, state, final)

    def _move(self, setting: Setting, state: State, gradient: Tensor, moving: Tensor) -> None:
        images, points = state["images"], state["adversarial"]
        ascended = clip_to(points + self.step_size * self._direction(setting, state, gradient), setting.box)
        moved = clip_to(images + self.ball.project(ascended - images), setting.box)
        chosen = as_column(moving.to(images.device), images)
        state["adversarial"] = torch.where(chosen, moved, points)
        state["iteration"] += moving

    def _direction(self, setting: Setting, state: State, gradient: Tensor) -> Tensor:
        """A step of unit length, for attacks that extend this one to change."""
        return steepest(gradient, self.ball.norm)

    def _begin_again(self, setting: Setting, state: State, final: Tensor) -> None:
        state["restart"] += final
        state["done"] |= final & (state["restart"] >= self.restarts)
        again = (final & ~state["done"]).nonzero().flatten()
        if len(again) == 0:
            return
        state["iteration"][again] = 0
        index = again.to(state["images"].device)
        first = self._first_iterate(
            setting, state["row"][again], state["restart"][again], state["images"][index]
        )
        state["adversarial"] = state["adversarial"].index_copy(0, index, first)

    def _first_iterate(self, setting: Setting, rows: Tensor, restart: Tensor, images: Tensor) -> Tensor:
        if not self.random_start:
            return images
        draws = setting.randomness.uniform(
            setting.ids_of(rows),
            tuple(images.shape[1:]),
            restart=restart.tolist(),
            dtype=images.dtype,
            device=images.device,
        )
        return clip_to(images + self.ball.cube_start(draws), setting.box)
