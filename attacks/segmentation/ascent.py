"""Projected steepest ascent on a pixel loss, in Linf: the kernel of PGD and SegPGD on segmentation models.

The step is from `attacks.adversarial.kernels.projected_ascent`. Every iterate counts, the random start
included. Gu et al. 2022 (SegPGD) report the last one, Croce et al. 2024 (appendix B.1) the one with the
highest loss; here it is the one with the fewest correct pixels, never weaker than either in pixel accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from assay.attacks.kernel import Setting, State
from assay.attacks.segmentation.kernel import (
    LAST_PART,
    Forward,
    PixelEnsemble,
    PixelExamples,
    begin,
    look,
    note_last_part,
    random_cube,
    record,
)
from assay.attacks.segmentation.losses import LossName, PixelLoss
from assay.attacks.sending import sent
from assay.attacks.threat import Ball, as_column, clip_to


def ascending(
    name: str,
    loss: LossName,
    *,
    epsilon: float,
    steps: int,
    step_size: float | None,
    relative_step_size: float,
    random_start: bool,
) -> PixelEnsemble:
    """Attack that ascends on one loss within an Linf ball of radius epsilon, in pixel units.

    `step_size` is the change of a value per step; None takes `relative_step_size * epsilon`.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}, it must be at least 1")
    kernel = partial(
        PixelAscent,
        name,
        ball=Ball("Linf", epsilon),
        step_size=relative_step_size * epsilon if step_size is None else step_size,
        steps=steps,
        random_start=random_start,
    )
    return PixelEnsemble(name, kernel, (loss,))


@dataclass(frozen=True)
class PixelAscent:
    """Ascends from the image or from a random start."""

    name: str
    loss: PixelLoss
    ball: Ball
    step_size: float
    steps: int
    random_start: bool

    def start(self, setting: Setting, examples: PixelExamples) -> State:
        """State of new slots: at the image, or at the random start."""
        first = examples.images
        if self.random_start:
            first = clip_to(first + self.ball.cube_start(random_cube(setting, examples)), setting.box)
        return begin(examples, first)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the current iterates; moves on, or ends."""
        final = state["iteration"] >= self.steps
        seen = look(model, state, self.loss, ~final, state["iteration"] / self.steps)
        record(state, seen.right)
        note_last_part(state, state["iteration"] == self.steps - self.steps // LAST_PART)
        state["adversarial"] = self._moved(setting, state, seen.gradient, ~final)
        state["iteration"] += ~final
        state["done"] |= final

    def _moved(self, setting: Setting, state: State, gradient: Tensor, moving: Tensor) -> Tensor:
        images, points = state["images"], state["adversarial"]
        ascended = clip_to(points + self.step_size * gradient.sign(), setting.box)
        moved = clip_to(images + self.ball.project(ascended - images), setting.box)
        return torch.where(as_column(sent(moving, images), images), moved, points)
