"""The steps of sigma-zero: Adam on a hinge and a smooth count of the changed values, and a rising threshold.

Cina et al. 2025, "sigma-zero: Gradient-based Optimization of l0-norm Adversarial Examples", algorithm 1;
constants as in adversarial-library 0.2. With the perturbation d of D values and the image's label y:

    l  = max(z_y - max_{i != y} z_i, 0) + 1/D sum_i d_i^2 / (d_i^2 + sigma)
    d' = clip(d - h Adam(g / |g|_inf)),     h falls from `step_size` to a tenth of it along a cosine
    t' = t + 0.01 h where x + d is adversarial, else t - 0.01 h,  in [0, 1];    t = `threshold` at first
    values of d' that are smaller than t' become 0

Deviation: an adversarial needs a lead above rounding (`minimum_norm.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.losses import margin
from assay.attacks.adversarial.kernels.minimum_norm import MIN_LENGTH, Iterate, MinimumNorm
from assay.attacks.kernel import Objective, Setting, State
from assay.attacks.sending import sent
from assay.attacks.threat import as_column, clip_to

DECAY, SQUARE_DECAY, MIN_ROOT = 0.9, 0.999, 1e-8
THRESHOLD_STEP = 0.01


@dataclass(frozen=True)
class SigmaZero(MinimumNorm):
    """Sigma-zero. Keys of its own: `first`, `second` of Adam, like the images; `threshold`, (B,)."""

    step_size: float = 1.0  # Of the first step
    sigma: float = 1e-3  # Smoothness of the count
    threshold: float = 0.3  # The first one

    def _objective(self, goal: Tensor) -> Objective:
        return lambda logits: margin(logits, goal).clamp(max=0)

    def _own(self, images: Tensor) -> State:
        zeros = torch.zeros_like(images)
        first = images.new_full((len(images),), self.threshold)
        return {"first": zeros, "second": zeros, "threshold": first}

    def _moved(self, setting: Setting, state: State, iterate: Iterate) -> Tensor:
        images = state["images"]
        perturbation = state["adversarial"] - images
        square = perturbation.square()
        entries = images[0].numel()
        slope = 2 * self.sigma * perturbation / (square + self.sigma).square() / entries - iterate.gradient
        slope = slope / as_column(slope.flatten(1).abs().amax(1).clamp(min=MIN_LENGTH), slope)
        state["first"] = state["first"].lerp(slope, 1 - DECAY)
        state["second"] = state["second"] * SQUARE_DECAY + (1 - SQUARE_DECAY) * slope.square()
        count = state["iteration"].double() + 1
        rate, root = (
            as_column(sent(factor.to(images.dtype), images), images)
            for factor in (1 / (1 - DECAY**count), (1 - SQUARE_DECAY**count).sqrt())
        )
        length = self._length(state, 1)
        step = as_column(length, images) * rate * state["first"] / (state["second"].sqrt() / root + MIN_ROOT)
        moved = clip_to(images + perturbation - step, self.box(setting)) - images
        change = THRESHOLD_STEP * self._length(state, 0)
        threshold = state["threshold"] + torch.where(iterate.success, change, -change)
        state["threshold"] = threshold.clamp(0, 1)
        few = moved * (moved.abs() >= as_column(state["threshold"], moved))
        return images + few

    def _length(self, state: State, earlier: int) -> Tensor:
        """The step size of the present step, or for `earlier` 1 of the step before, (B,)."""
        before = {"iteration": (state["iteration"] - earlier).clamp(min=0), "images": state["images"]}
        return self.annealed(before, self.step_size, 0.1 * self.step_size)
