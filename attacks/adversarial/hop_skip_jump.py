"""HopSkipJump.

Chen, Jordan and Wainwright 2020, "HopSkipJumpAttack: A Query-Efficient Decision-Based Attack", algorithm 2.
With x0 the image of D values, phi(x) = 1 where x is misclassified and -1 elsewhere,

    start      uniform noise that is misclassified, then a binary search towards x0
    direction  v = sum_b (phi(x + delta u_b) - mean phi) u_b, at the boundary x, with `samples` sqrt(t) draws
               u_b on the unit sphere (L2) or uniform in the cube (Linf), sign(v) in Linf
    jump       x + xi v / |v|, xi = |x - x0|_p / sqrt(t), halved until it is misclassified
    boundary   binary search between there and x0, to a share theta of the way: blends in L2, clips in Linf
    delta      0.1 at first, then sqrt(D) theta |x - x0|_2 with theta = D^-1.5, or D theta |x - x0|_inf with
               theta = D^-2

until the `queries` are spent. Deviations: an answer counts as wrong where the wrong logit leads by 64
roundings (`minimum_norm.py`); the binary search makes as many steps for every example, at most 40; a start is
sought in 100 draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.minimum_norm import misled
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, begin, keep, select
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS, Norm, as_column, sizes

__all__ = ["hop_skip_jump"]

ALSO = ("HSJ", "HSJA", "boundary", "boundary attack")
TASKS = ("classification",)
THREAT = {"knowledge": "black_box", "search": "iterative", "norm": "L2", "minimum_norm": True}
TABLE = "attack"
PAPER = "Chen et al. 2020, HopSkipJumpAttack: A Query-Efficient Decision-Based Attack"
# The last round may go beyond the budget by its own queries.
PASSES = ("2 * params.queries + 300 + 4 * params.samples", "0")
# Within the range of pixels, under any protocol of the job.
PROTOCOLS = ("pixel",)

STARTS, JUMPS, MAX_HALVINGS = 100, 20, 40
# Directions drawn at a time, for each example.
DRAWN = 8
FIRST_DELTA = 0.1

Wrong = Callable[[Tensor], Tensor]
"""Whether each image (B, C, H, W) is misclassified, bool (B,)."""


def hop_skip_jump(
    *,
    norm: Annotated[Norm, "strength"] = "L2",
    queries: Annotated[int, Interval(ge=1, le=1_000_000)] = 2000,
    samples: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    samples_per_pass: Annotated[int, Interval(ge=1, le=1_000_000)] = 256,
    area_to: parameters.AreaTo = None,
) -> Attack:
    """The smallest perturbation by steps along the boundary; it sees predicted classes alone.

    Accuracy is the share of examples for which no start was found; the distances are the result.

    Args:
        norm: Of the perturbation.
        queries: Passes after which no new round begins.
        samples: Draws of the first estimate of a direction; their number grows with the root of the round.
        samples_per_pass: How many draws go through the model together; it bounds the memory.
    """
    del area_to  # read by the summary
    if norm not in ("Linf", "L2"):
        raise ValueError(f"norm is {norm!r}, allowed are Linf, L2")
    if min(queries, samples, samples_per_pass) < 1:
        raise ValueError(
            f"queries ({queries}), samples ({samples}) and samples_per_pass ({samples_per_pass}) must be"
            " at least 1"
        )
    return _HopSkipJump(norm, queries, samples, samples_per_pass)


@dataclass(frozen=True)
class _HopSkipJump:
    """A step of the kernel is a round: a direction, a jump and a binary search; `iteration` counts rounds."""

    norm: Norm
    queries: int
    samples: int
    samples_per_pass: int
    name: ClassVar[str] = "hop_skip_jump"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = False
    ball: ClassVar[None] = None

    def start(self, setting: Setting, examples: Examples) -> State:
        del setting
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        for number in state["iteration"].unique().tolist():
            here = (state["iteration"] == number).nonzero().flatten()
            some = select(state, here)
            if number == 0:
                self._begin(setting, model, some)
            else:
                self._round(setting, model, some, number)
            some["iteration"] = some["iteration"] + 1
            some["done"] = some["done"] | (some["forward"].cpu() >= self.queries)
            for key, values in state.items():
                index = sent(here, values)
                state[key] = values.index_copy(0, index, some[key])

    def _begin(self, setting: Setting, model: Forward, state: State) -> None:
        images = state["images"]
        found = torch.zeros(len(images), dtype=torch.bool, device=images.device)
        points = images
        for attempt in range(STARTS):
            if found.all():
                break
            draws = self._draw(setting, state, 1, attempt, "start", uniform=True)[:, 0]
            wrong = self._wrong(model, state, ~found)(draws) & ~found
            points = torch.where(as_column(wrong, draws), draws, points)
            found = found | wrong
        state["done"] = state["done"] | ~found.cpu()
        self._approach(model, state, points, found)

    def _round(self, setting: Setting, model: Forward, state: State, number: int) -> None:
        images, points = state["images"], state["adversarial"]
        distance = sizes(points - images, self.norm)
        direction = self._direction(setting, model, state, number, distance)
        length, reached = distance / math.sqrt(number), points
        open_ = torch.ones_like(state["broken"])
        for _ in range(JUMPS):
            if not open_.any():
                break
            jump = (points + as_column(length, points) * direction).clamp(*PIXELS)
            wrong = self._wrong(model, state, open_)(jump) & open_
            reached = torch.where(as_column(wrong, jump), jump, reached)
            open_, length = open_ & ~wrong, length / 2
        self._approach(model, state, reached, torch.ones_like(open_))

    def _direction(
        self, setting: Setting, model: Forward, state: State, number: int, distance: Tensor
    ) -> Tensor:
        points = state["adversarial"]
        entries = points[0].numel()
        delta = torch.full_like(distance, FIRST_DELTA)
        if number > 1:
            delta = (entries if self.norm == "Linf" else math.sqrt(entries)) * self._theta(entries) * distance
        count = max(1, int(self.samples * math.sqrt(number)))
        step = delta.clamp(min=1e-12)[:, None, None, None, None]
        live = torch.ones_like(state["broken"])
        answers, cube = torch.zeros_like(distance), self.norm == "Linf"
        signed, plain = torch.zeros_like(points), torch.zeros_like(points)
        # A few draws at a time: the draws of a round would not fit into memory.
        for first in range(0, count, DRAWN):
            some, purpose = min(DRAWN, count - first), f"direction/{first}"
            draws = self._draw(setting, state, some, number, purpose, uniform=cube)
            draws = 2 * draws - 1 if cube else draws
            draws = draws / draws.flatten(2).square().sum(2).sqrt().clamp(min=1e-12)[:, :, None, None, None]
            near = (points[:, None] + step * draws).clamp(*PIXELS)
            draws = (near - points[:, None]) / step
            found = [
                self._wrong(model, state, live, part.shape[1])(part.flatten(0, 1)).view(part.shape[:2])
                for part in near.split(max(1, self.samples_per_pass // len(points)), dim=1)
            ]
            sign = 2 * torch.cat(found, 1).to(points) - 1  # (B, S)
            answers = answers + sign.sum(1)
            signed = signed + torch.einsum("bs,bs...->b...", sign, draws)
            plain = plain + draws.sum(1)
        mean = answers / count
        # Where all answers are alike their mean is the direction, as in the paper.
        total = torch.where(
            as_column(mean.abs() == 1, points), signed, signed - as_column(mean, points) * plain
        )
        if self.norm == "Linf":
            return total.sign()
        return total / as_column(total.flatten(1).square().sum(1).sqrt().clamp(min=1e-12), total)

    def _approach(self, model: Forward, state: State, points: Tensor, adversarial: Tensor) -> None:
        images = state["images"]
        entries = images[0].numel()
        reach = torch.ones_like(sizes(images, self.norm))
        if self.norm == "Linf":
            reach = sizes(points - images, self.norm)
        low, high = torch.zeros_like(reach), reach
        halvings = min(MAX_HALVINGS, math.ceil(-math.log2(self._theta(entries))))
        for _ in range(halvings):
            middle = (low + high) / 2
            wrong = self._wrong(model, state, adversarial)(self._between(images, points, middle))
            low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
        reached = self._between(images, points, high)
        state["adversarial"] = torch.where(as_column(adversarial, reached), reached, state["adversarial"])
        state["forward"] = state["forward"] + adversarial
        logits = model(state["adversarial"])
        wrong = misled(logits, state["truth"]) & adversarial
        size = sizes(state["adversarial"] - images, self.norm).double()
        keep(state, logits, -size, wrong & ~(-size <= state["objective"]))

    def _between(self, images: Tensor, points: Tensor, share: Tensor) -> Tensor:
        column = as_column(share, images)
        if self.norm == "Linf":
            return images + torch.minimum(torch.maximum(points - images, -column), column)
        return images + column * (points - images)

    def _theta(self, entries: int) -> float:
        return math.pow(entries, -2.0 if self.norm == "Linf" else -1.5)

    def _wrong(self, model: Forward, state: State, asked: Tensor, count: int = 1) -> Wrong:
        truth = state["truth"].repeat_interleave(count)

        def answer(points: Tensor) -> Tensor:
            state["forward"] = state["forward"] + asked * count
            return misled(model(points), truth)

        return answer

    def _draw(
        self, setting: Setting, state: State, count: int, step: int, purpose: str, *, uniform: bool
    ) -> Tensor:
        images = state["images"]
        draw = setting.randomness.uniform if uniform else setting.randomness.normal
        return draw(
            setting.ids_of(state["row"]),
            (count, *images.shape[1:]),
            step=step,
            purpose=purpose,
            dtype=images.dtype,
            device=images.device,
        )
