"""A patch that may be anything: a square of pixels, placed where it hurts, and filled by gradient steps.

Brown et al. 2017, "Adversarial Patch", made for each image; Gu, Tresp and Qin 2022, "Are Vision Transformers
Robust to Patch Perturbations?", section 3, which fits the patch to one token of a ViT; the place as in Fu et
al. 2022, "Patch-Fool", which asks the attention, here the gradient alone.

    x' = (1 - m) x + m d,    m the mask of a `size` x `size` square, d in the range of pixels
    d' = clip(d + s sign(gradient of the loss)),    from the image itself, or from uniform draws
    the place: the squares with the largest sum of |gradient| at x, one restart each (gradient); every one
    of the grid in turn (all); or the middle of the image (centre)

With `aligned` squares are on the grid of `size` pixels, a ViT's grid of tokens where `size` is its patch's;
else at every place of half a square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

import torch
from annotated_types import Interval
from torch import Tensor
from torch.nn.functional import avg_pool2d

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.losses import LossName
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import evaluate
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS

__all__ = ["adversarial_patch"]

TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative"}
TABLE = "attack"
PAPER = "Brown et al. 2017, Adversarial Patch"
# With `all` an image has at most 256 places.
RUNS = "(params.restarts * (params.location != 'all') + 256 * (params.location == 'all'))"
PASSES = (f"2 + {RUNS} * (params.steps + 1)", f"1 + {RUNS} * params.steps")
# A patch is within the range of pixels, under any protocol of the job.
PROTOCOLS = ("pixel",)
RULES = (parameters.PATCH_RULE, *parameters.TARGET_RULES, parameters.TARGETED_LOSS_RULE, parameters.DLR_RULE)

Location = Literal["gradient", "all", "centre"]
MAX_PLACES = 256


def adversarial_patch(
    *,
    size: Annotated[int, "strength", Interval(ge=1, le=10_000)] = 16,
    aligned: bool = True,
    location: Location = "gradient",
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    step_size: Annotated[float, Interval(gt=0, le=1)] = 0.05,
    restarts: Annotated[int, Interval(ge=1, le=64)] = 1,
    random_start: bool = False,
    loss: LossName = "ce",
    targeted: parameters.Targeted = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
) -> Attack:
    """A square of any pixels, made for each image.

    Args:
        size: Side of the square, in pixels.
        aligned: Squares on the grid of `size` pixels; else at steps of half a square.
        location: The squares with the largest gradients, one in each restart; all squares, 256 at most, in
            the order of their gradients; or the middle.
        steps: Gradient steps for each place.
        step_size: Length of a step, in pixel units.
        restarts: How many places are tried with location gradient; how many starts with centre.
        random_start: Begin with uniform pixels instead of those of the image.
        loss: What an untargeted attack raises, as in `pgd`.
    """
    if min(size, steps, restarts) < 1:
        raise ValueError(f"size ({size}), steps ({steps}) and restarts ({restarts}) must be at least 1")
    if location not in get_args(Location):
        raise ValueError(f"location is {location!r}, allowed are {', '.join(get_args(Location))}")
    goal = Goal(targeted, target, target_class, loss)
    return _Patch(goal, size, aligned, location, steps, step_size, restarts, random_start)


@dataclass(frozen=True)
class _Patch:
    """Signed steps within a square, for one place after the other.

    The first step takes the gradient at the image, which ranks the places. Keys of its own:

        places    the corners of the squares in the order in which they are tried, top and left, (B, R, 2)
        looked    the places are known, on the CPU
    """

    goal: Goal
    size: int
    aligned: bool
    location: Location
    steps: int
    step_size: float
    restarts: int
    random_start: bool
    name: ClassVar[str] = "adversarial_patch"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True
    ball: ClassVar[None] = None

    def start(self, setting: Setting, examples: Examples) -> State:
        height, width = examples.images.shape[-2:]
        if self.size > min(height, width):
            raise ValueError(f"size is {self.size}, the images are of {height} x {width} pixels")
        goal = self.goal.choose(setting, examples)
        state = begin(examples, goal, examples.images, targeted=self.goal.targeted)
        count = len(examples.rows)
        return state | {
            "places": torch.zeros(count, self._runs(height, width), 2, dtype=torch.int64, device=goal.device),
            "looked": torch.zeros(count, dtype=torch.bool),
        }

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        looking = ~state["looked"]
        final = (state["iteration"] >= self.steps) & ~looking
        logits, values, gradient = evaluate(model, state, self.goal.objective(state["goal"]), ~final)
        record(setting, state, logits, values)
        if looking.any():
            self._look(state, gradient, looking)
        moving = ~(final | looking)
        if moving.any():
            moved = (state["adversarial"] + self.step_size * gradient.sign()).clamp(*PIXELS)
            self._put(state, moved, moving)
            state["iteration"] = state["iteration"] + moving
        state["restart"] = state["restart"] + final
        state["done"] = state["done"] | (final & (state["restart"] >= state["places"].shape[1]))
        begun = looking | (final & ~state["done"])
        if begun.any():
            state["iteration"] = state["iteration"].masked_fill(begun, 0)
            self._begin(setting, state, begun)

    def _runs(self, height: int, width: int) -> int:
        if self.location == "centre":
            return self.restarts
        stride = self._stride
        count = ((height - self.size) // stride + 1) * ((width - self.size) // stride + 1)
        return min(count, MAX_PLACES if self.location == "all" else self.restarts)

    @property
    def _stride(self) -> int:
        return self.size if self.aligned else max(1, self.size // 2)

    def _look(self, state: State, gradient: Tensor, looking: Tensor) -> None:
        height, width = gradient.shape[-2:]
        if self.location == "centre":
            corner = torch.tensor([(height - self.size) // 2, (width - self.size) // 2])
            places = corner.to(gradient.device).expand_as(state["places"])
        else:
            strength = gradient.abs().sum(1, keepdim=True)
            pooled = avg_pool2d(strength, self.size, self._stride)[:, 0]
            # Of equal squares the first counts, on every device.
            order = pooled.flatten(1).sort(dim=1, descending=True, stable=True).indices
            order = order[:, : state["places"].shape[1]]
            columns = pooled.shape[2]
            places = torch.stack([order // columns, order % columns], 2) * self._stride
        chosen = sent(looking, gradient)[:, None, None]
        state["places"] = torch.where(chosen, places, state["places"])
        state["looked"] = torch.ones_like(state["looked"])

    def _mask(self, state: State) -> Tensor:
        """Whether each pixel is in the present square, bool (B, 1, H, W)."""
        images, places = state["images"], state["places"]
        run = sent(state["restart"].clamp(max=places.shape[1] - 1), places)
        corner = places[torch.arange(len(run), device=places.device), run]  # (B, 2)
        inside = []
        for axis, length in enumerate(images.shape[-2:]):
            index = torch.arange(length, device=images.device)[None]
            first = corner[:, axis : axis + 1]
            inside.append((index >= first) & (index < first + self.size))
        return (inside[0][:, :, None] & inside[1][:, None, :])[:, None]

    def _put(self, state: State, patched: Tensor, which: Tensor) -> None:
        mask = self._mask(state) & sent(which, patched)[:, None, None, None]
        state["adversarial"] = torch.where(mask, patched, state["adversarial"])

    def _begin(self, setting: Setting, state: State, begun: Tensor) -> None:
        images = state["images"]
        fresh = sent(begun, images)[:, None, None, None]
        state["adversarial"] = torch.where(fresh, images, state["adversarial"])
        if self.random_start or (self.location == "centre" and self.restarts > 1):
            draws = setting.draw("uniform", state["row"], images, restart=state["restart"].tolist())
            self._put(state, draws, begun)
