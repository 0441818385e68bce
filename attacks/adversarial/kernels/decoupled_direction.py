"""The steps of DDN: a direction from the gradient, and a norm that shrinks and grows on its own.

Rony et al. 2019, "Decoupling Direction and Norm for Efficient Gradient-Based L2 Adversarial Attacks and
Defenses", algorithm 1; constants as in its authors' code (adversarial-library 0.2):

    d' = d + a g / |g|_2,     a falls from 1 to 0.01 along a cosine,     d the perturbation, g of the loss
    e' = (1 - gamma) e if x + d is adversarial, else (1 + gamma) e,     at most to the box's farthest corner
    x' = clip(x + e' d' / |d'|_2),     in steps of 1 / (levels - 1) if asked for

Deviations: a gradient of zero gives no move, where the code draws a direction; an adversarial needs a lead
above rounding (`minimum_norm.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.minimum_norm import MIN_LENGTH, Iterate, MinimumNorm, unit
from assay.attacks.kernel import Objective, Setting, State
from assay.attacks.threat import as_column, clip_to

FIRST_LENGTH, LAST_LENGTH = 1.0, 0.01


@dataclass(frozen=True)
class DecoupledDirection(MinimumNorm):
    """DDN. Key of its own: `radius`, the norm to which the next perturbation is scaled, (B,).

    Attributes:
        gamma: Share by which the norm changes in a step.
        first_norm: Norm after the first step, without that change.
        levels: Number of values that a pixel may take; None for any.
    """

    gamma: float = 0.05
    first_norm: float = 1.0
    levels: int | None = None

    def _objective(self, goal: Tensor) -> Objective:
        return self.goal.objective(goal)

    def _own(self, images: Tensor) -> State:
        return {"radius": images.new_full((len(images),), self.first_norm)}

    def _moved(self, setting: Setting, state: State, iterate: Iterate) -> Tensor:
        images, box = state["images"], self.box(setting)
        length = self.annealed(state, FIRST_LENGTH, LAST_LENGTH)
        perturbation = state["adversarial"] - images + as_column(length, images) * unit(iterate.gradient)
        radius = state["radius"] * torch.where(iterate.success, 1 - self.gamma, 1 + self.gamma).to(images)
        state["radius"] = torch.minimum(radius, self.farthest(setting, images))
        norm = perturbation.flatten(1).square().sum(1).sqrt().clamp(min=MIN_LENGTH)
        moved = clip_to(images + as_column(state["radius"] / norm, images) * perturbation, box)
        if self.levels is None:
            return moved
        low, high = box
        steps = (self.levels - 1) / (high - low)
        return low + ((moved - low) * steps).round() / steps
