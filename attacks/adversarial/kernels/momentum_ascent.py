"""Gradient steps with momentum, on randomly shrunk, scaled and smoothed gradients: attacks that transfer.

    MI    g' = mu g + h / |h|_1,    x' = P(x + s direction(g'))       Dong et al. 2018, equations 6 and 7
    NI    h at x + s mu g                                             Lin et al. 2020, equation 6
    DI    h at D(x): with probability p, x shrunk to a random side of at least `resize` of its own, at a
          random place on black                                      Xie et al. 2019, equation 5
    TI    h convolved with a normal kernel of k x k pixels, three standard deviations to its edge
                                                                      Dong et al. 2019, equation 8
    SI    h the mean of the gradients at x / 2^i, i = 0 .. m - 1      Lin et al. 2020, equation 7

Dong et al. 2018, "Boosting Adversarial Attacks with Momentum"; Lin et al. 2020, "Nesterov Accelerated
Gradient and Scale Invariance for Adversarial Attacks"; Xie et al. 2019, "Improving Transferability of
Adversarial Examples with Input Diversity"; Dong et al. 2019, "Evading Defenses to Transferable Adversarial
Examples by Translation-Invariant Attacks". P projects onto the ball and the range of pixels; direction is the
sign in Linf and g / |g|_2 in L2. Deviation: Xie et al. enlarge the image, which models of a fixed input size
do not take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample

from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import ask, differentiate, evaluate, note_gradient
from assay.attacks.sending import sent
from assay.attacks.threat import Ball, as_column, clip_to, steepest

MIN_NORM = 1e-12


@dataclass(frozen=True)
class MomentumAscent:
    """Ascends from the image. Key of its own in the state: `momentum`, g, like the images.

    A gradient elsewhere than at the iterate takes passes of its own.
    """

    name: str
    ball: Ball
    goal: Goal
    step_size: float
    steps: int
    momentum: float = 1.0
    nesterov: bool = False
    diversity: float = 0.0
    resize: float = 0.9
    smoothing: int = 1
    scales: int = 1
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.steps < 1 or self.scales < 1:
            raise ValueError(f"steps ({self.steps}) and scales ({self.scales}) must be at least 1")
        if self.smoothing < 1 or self.smoothing % 2 == 0:
            raise ValueError(f"smoothing is {self.smoothing}, it must be odd and at least 1")
        if not (0 <= self.diversity <= 1 and 0 < self.resize <= 1):
            raise ValueError(
                f"diversity is {self.diversity}, allowed are 0 to 1;"
                f" resize is {self.resize}, allowed are above 0 to 1"
            )

    @property
    def _elsewhere(self) -> bool:
        return self.nesterov or self.diversity > 0 or self.scales > 1

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image."""
        goal = self.goal.choose(setting, examples)
        state = begin(examples, goal, examples.images, targeted=self.goal.targeted)
        return state | {"momentum": torch.zeros_like(examples.images)}

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates; moves on, or ends."""
        final = state["iteration"] >= self.steps
        objective = self.goal.objective(state["goal"])
        if self._elsewhere:
            logits, values = ask(model, state, objective)
            gradient = torch.zeros_like(state["adversarial"])
            if not final.all():
                gradient = self._gradient(setting, model, state, ~final)
        else:
            logits, values, gradient = evaluate(model, state, objective, ~final)
        record(setting, state, logits, values, final if setting.final_iterate else None)
        if not final.all():
            self._move(setting, state, gradient, ~final)
        state["done"] = final

    def _gradient(self, setting: Setting, model: Forward, state: State, moving: Tensor) -> Tensor:
        points, objective = state["adversarial"], self.goal.objective(state["goal"])
        if self.nesterov:
            points = points + self.step_size * self.momentum * state["momentum"]
        places = self._places(setting, state)
        total = torch.zeros_like(points)
        for number in range(self.scales):
            # By the chain rule, so that the model itself may run in parts where memory is short.
            with torch.enable_grad():
                leaf = points.detach().requires_grad_(True)
                given = leaf * 2.0**-number
                given = given if places is None else shrunk(given, places)
            slope = differentiate(model, given.detach(), objective)[2]
            total = total + torch.autograd.grad(given, leaf, slope)[0]
        live = ~state["broken"] & sent(moving, points)
        for key in ("forward", "backward"):
            state[key] = state[key] + live * self.scales
        return note_gradient(state, total / self.scales, moving)

    def _places(self, setting: Setting, state: State) -> Tensor | None:
        """Side of each shrunk image as a share, and its place from 0 to 1, (B, 3); None without DI."""
        if not self.diversity:
            return None
        images = state["images"]
        # One draw for each step of an example: slots of a batch may be at different steps.
        draws = torch.stack(
            [
                setting.randomness.uniform(
                    setting.ids_of(row), (4,), step=int(step), purpose="diversity", dtype=torch.float64
                )[0]
                for row, step in zip(state["row"].split(1), state["iteration"], strict=True)
            ]
        ).to(images)
        side = 1 - draws[:, 1] * (1 - self.resize)
        side = torch.where(draws[:, 0] < self.diversity, side, 1.0)
        return torch.stack([side, draws[:, 2], draws[:, 3]], 1)

    def _move(self, setting: Setting, state: State, gradient: Tensor, moving: Tensor) -> None:
        images, points = state["images"], state["adversarial"]
        if self.smoothing > 1:
            gradient = smoothed(gradient, self.smoothing)
        size = as_column(gradient.flatten(1).abs().sum(1).clamp(min=MIN_NORM), gradient)
        momentum = self.momentum * state["momentum"] + gradient / size
        ascended = points + self.step_size * steepest(momentum, self.ball.norm)
        moved = clip_to(images + self.ball.project(clip_to(ascended, setting.box) - images), setting.box)
        chosen = as_column(sent(moving, images), images)
        state["momentum"] = torch.where(chosen, momentum, state["momentum"])
        state["adversarial"] = torch.where(chosen, moved, points)
        state["iteration"] = state["iteration"] + moving


def shrunk(images: Tensor, places: Tensor) -> Tensor:
    """Images (B, C, H, W) shrunk, bilinearly, onto black.

    `places` (B, 3) are the side as a share of the image's, and the place from left to right and from top to
    bottom, each from 0 to 1.
    """
    side = places[:, :1]
    # In coordinates from -1 to 1 the shrunk image has its centre within 1 - side of the middle.
    centre = (2 * places[:, 1:] - 1) * (1 - side)
    matrix = torch.zeros(len(images), 2, 3, dtype=images.dtype, device=images.device)
    matrix[:, 0, 0] = matrix[:, 1, 1] = 1 / side[:, 0]
    matrix[:, :, 2] = -centre / side
    grid = affine_grid(matrix, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def smoothed(gradient: Tensor, size: int) -> Tensor:
    """Gradients (B, C, H, W) convolved with a normal kernel, each channel alone; zeros beyond the border."""
    places = torch.linspace(-3, 3, size, dtype=gradient.dtype, device=gradient.device)
    line = (-places.square() / 2).exp()
    kernel = line[:, None] * line[None]
    channels = gradient.shape[1]
    weight = (kernel / kernel.sum()).expand(channels, 1, size, size)
    return conv2d(gradient, weight, padding=size // 2, groups=channels)
