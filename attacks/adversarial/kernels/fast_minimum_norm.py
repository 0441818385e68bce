"""The steps of FMN: a radius that comes to the boundary, and gradient steps projected onto its ball.

Pintor et al. 2021, "Fast Minimum-norm Adversarial Attacks through Adaptive Norm Constraints", algorithm 1;
constants as in adversarial-library 0.2. With the perturbation d, its norm |d|_p, the smallest adversarial
norm b so far, the objective l = max_{i != y} z_i - z_y (a target: z_t - max_{i != t} z_i) and its gradient g:

    e' = max(|d|_p + |l| / |g|_q, (1 + c) e)  before the first adversarial, q the dual norm
    e' = min((1 - c) e, b)                    where x + d is adversarial
    e' = (1 + c) e                            elsewhere
    in L0  e' = min(e - 1, floor((1 - c) e), b), or max(e + 1, floor((1 + c) e)), from 1
    d' = P(d + a g / |g|_2),                  P projects onto the ball of radius e', then onto the box
    a falls from `step_size` to a hundredth of it, c from `gamma` to 0.001, both along a cosine

In L2, P scales to e' whether d' is longer or shorter; in L0 it keeps the e' largest values, and equal ones.
Deviations: an adversarial needs a lead above rounding (`minimum_norm.py`); before the first adversarial the
code has |d|_p + |l| / |g|_q alone (`overshoot` False), which ends short of the boundary where the objective
bends down and finds next to nothing in L2 (`test_minimum_norm.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.l1_projection import l1_projection
from assay.attacks.adversarial.kernels.losses import margin
from assay.attacks.adversarial.kernels.minimum_norm import MIN_LENGTH, Iterate, MinimumNorm, unit
from assay.attacks.kernel import Objective, Setting, State
from assay.attacks.threat import DUAL, as_column, clip_to, sizes

LAST_GAMMA = 0.001
LAST_STEP = 0.01


@dataclass(frozen=True)
class FastMinimumNorm(MinimumNorm):
    """FMN. Key of its own: `radius`, the radius of the ball of the next perturbation, (B,)."""

    step_size: float = 1.0  # L2 length of the first step
    gamma: float = 0.05  # Share by which the radius changes in the first step
    overshoot: bool = True  # Let the radius grow by that share at least until the boundary was crossed once

    def _objective(self, goal: Tensor) -> Objective:
        if self.goal.targeted:
            return lambda logits: -margin(logits, goal)
        return lambda logits: margin(logits, goal)

    def _own(self, images: Tensor) -> State:
        first = 1.0 if self.norm == "L0" else torch.inf
        return {"radius": images.new_full((len(images),), first)}

    def _moved(self, setting: Setting, state: State, iterate: Iterate) -> Tensor:
        images = state["images"]
        radius = self._radius(state, iterate)
        state["radius"] = torch.minimum(radius, self.farthest(setting, images))
        length = as_column(self.annealed(state, self.step_size, LAST_STEP * self.step_size), images)
        ascended = state["adversarial"] - images + length * unit(iterate.gradient)
        return clip_to(images + self._projected(images, ascended, state["radius"]), self.box(setting))

    def _radius(self, state: State, iterate: Iterate) -> Tensor:
        radius, change = state["radius"], self.annealed(state, self.gamma, LAST_GAMMA)
        smaller, larger = radius * (1 - change), radius * (1 + change)
        if self.norm == "L0":
            fewer = torch.minimum(torch.minimum(radius - 1, smaller.floor()), state["smallest"])
            return torch.where(iterate.success, fewer, torch.maximum(radius + 1, larger.floor())).clamp(min=0)
        slope = sizes(iterate.gradient, DUAL[self.norm]).clamp(min=MIN_LENGTH)
        ahead = iterate.size + iterate.values.abs() / slope
        if self.overshoot:
            ahead = torch.maximum(ahead, larger.where(larger.isfinite(), 0))
        reached = torch.where(state["found"], larger, ahead)
        return torch.where(iterate.success, torch.minimum(smaller, state["smallest"]), reached)

    def _projected(self, images: Tensor, perturbation: Tensor, radius: Tensor) -> Tensor:
        column = as_column(radius, perturbation)
        if self.norm == "Linf":
            return torch.minimum(torch.maximum(perturbation, -column), column)
        if self.norm == "L1":
            return l1_projection(images, perturbation, radius, None)
        flat = perturbation.flatten(1)
        if self.norm == "L2":
            length = flat.square().sum(1).sqrt().clamp(min=MIN_LENGTH)
            return (perturbation * as_column(radius / length, perturbation)).clamp(max=1)
        ordered = flat.abs().sort(dim=1, descending=True).values
        place = (radius.long() - 1).clamp(min=0)
        least = ordered.gather(1, place[:, None])
        return (flat * (flat.abs() >= least)).view_as(perturbation)
