"""Auto-PGD on a pixel loss, in Linf: three runs with the radius shrinking to epsilon.

Croce, Singh and Hein 2024, "Towards Reliable Evaluation and Fast Training of Robust Semantic Segmentation
Models", section 3.5: the steps are split 3 : 3 : 4 into runs of Auto-PGD (Croce and Hein 2020, algorithm 1;
`attacks.adversarial.kernels.auto_pgd`) with radius 2, 1.5 and 1 times epsilon, each from the projection of
the previous run's result.

Where the paper is silent:

- the first run starts at a random point on a face of the cube, as Auto-PGD does;
- the result of a run is its point with the highest loss, to which Auto-PGD itself returns;
- only iterates of the last run count, its starting projection included, because iterates of the first two are
  outside the ball; the one with the fewest correct pixels is kept;
- a non-finite gradient counts as zero.

B slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.auto_pgd import (
    MOMENTUM,
    halved_where_it_stalls,
    remember,
    run_keys,
    start_direction,
    windows,
)
from assay.attacks.kernel import Setting, State
from assay.attacks.segmentation.kernel import (
    LAST_PART,
    Forward,
    PixelExamples,
    begin,
    look,
    note_last_part,
    random_cube,
    record,
)
from assay.attacks.segmentation.losses import PixelLoss
from assay.attacks.sending import sent
from assay.attacks.threat import Ball, as_column, clip_to

RADII = (2.0, 1.5, 1.0)
SHARES = (3, 3, 4)


@dataclass(frozen=True)
class ShrinkingAutoPGD:
    """Auto-PGD in runs of shrinking radius.

    Keys of the state, besides the keys of `begin` and `run_keys`; `iteration` counts the steps of the run:

        run           (CPU) index of the current run, (B,)
    """

    name: str
    loss: PixelLoss
    ball: Ball
    steps: int
    rho: float

    @cached_property
    def runs(self) -> tuple[tuple[float, int], ...]:
        """Radius and steps of each run; runs without a step are omitted."""
        early = [self.steps * share // sum(SHARES) for share in SHARES[:-1]]
        lengths = [*early, self.steps - sum(early)]
        radii = [factor * self.ball.epsilon for factor in RADII]
        return tuple((radius, length) for radius, length in zip(radii, lengths, strict=True) if length)

    def start(self, setting: Setting, examples: PixelExamples) -> State:
        """State of new slots, at the random start of the first run."""
        images, n = examples.images, len(examples.rows)
        around = Ball("Linf", self.runs[0][0])
        spread = start_direction(random_cube(setting, examples), around)
        first = clip_to(images + around.epsilon * spread, setting.box)
        return begin(examples, first) | {"run": torch.zeros(n, dtype=torch.int64)} | run_keys(first)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the current iterates; moves on, begins the next run, or ends."""
        radius, length = self._of_runs(state)
        final, last = state["iteration"] >= length, state["run"] == len(self.runs) - 1
        taken = state["iteration"] + sum(
            (state["run"] > number) * steps for number, (_, steps) in enumerate(self.runs)
        )
        seen = look(model, state, self.loss, ~final, taken / self.steps)
        record(state, seen.right, last)
        note_last_part(state, last & (taken == self.steps - self.steps // LAST_PART))
        on_device = sent(radius.to(state["images"].dtype), state["images"])
        begun = sent(state["iteration"] == 0, seen.gradient)
        remember(state, seen.followed, seen.gradient, begun, lambda: 2 * on_device)
        gradient = self._check(state, seen.gradient, length)
        self._move(setting, state, gradient, on_device, ~final)
        self._next_run(setting, state, final, last)

    def _of_runs(self, state: State) -> tuple[Tensor, Tensor]:
        """Radius and steps of each slot's current run, on the CPU, (B,)."""
        radii, lengths = zip(*self.runs, strict=True)
        return torch.tensor(radii, dtype=torch.float64)[state["run"]], torch.tensor(lengths)[state["run"]]

    def _check(self, state: State, gradient: Tensor, length: Tensor) -> Tensor:
        pairs = zip(length.tolist(), state["iteration"].tolist(), strict=True)
        ending = torch.tensor([int(windows(steps)[taken]) for steps, taken in pairs])
        if not ending.any():
            return gradient
        window = sent(ending, gradient)
        few = state["rises"].double() <= window.double() * self.rho
        return halved_where_it_stalls(state, gradient, window > 0, few)

    def _move(self, setting: Setting, state: State, gradient: Tensor, radius: Tensor, moving: Tensor) -> None:
        images, points = state["images"], state["adversarial"]
        wide = as_column(radius, images)
        low, high = clip_to(images - wide, setting.box), clip_to(images + wide, setting.box)
        begun = sent(state["iteration"] == 0, images)
        ahead = as_column(torch.where(begun, 1.0, MOMENTUM).to(images.dtype), images)
        ascended = (points + as_column(state["step_size"], images) * gradient.sign()).clamp(low, high)
        moved = points + (ascended - points) * ahead + (points - state["previous"]) * (1 - ahead)
        chosen = as_column(sent(moving, images), images)
        state["adversarial"] = torch.where(chosen, moved.clamp(low, high), points)
        state["previous"] = torch.where(chosen, points, state["previous"])
        state["iteration"] += moving

    def _next_run(self, setting: Setting, state: State, final: Tensor, last: Tensor) -> None:
        state["done"] |= final & last
        again = final & ~last
        if not again.any():
            return
        state["run"] = state["run"] + again
        state["iteration"] = state["iteration"].masked_fill(again, 0)
        radius, _ = self._of_runs(state)
        images = state["images"]
        wide = as_column(sent(radius.to(images.dtype), images), images)
        near = images + (state["run_best"] - images).clamp(-wide, wide)
        chosen = as_column(sent(again, images), images)
        for key in ("adversarial", "previous"):
            state[key] = torch.where(chosen, clip_to(near, setting.box), state[key])
