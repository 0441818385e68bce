"""Rotations and translations: the worst of a grid, or of random draws.

Engstrom et al. 2019, "Exploring the Landscape of Spatial Robustness", section 3: with the angle a and the
shifts u and v (to the right and down, as shares of the side),

    x'(p) = x(R(-a) (p - (u, v))),     p a place around the centre of the image, bilinear between pixels

for every triple of `rotations` angles in [-max_rotation, max_rotation] and `shifts` values for each of u and
v in [-max_shift, max_shift] (`grid`), or for `draws` triples drawn uniformly (`random`, worst-of-k there).
The paper has 31 x 5 x 5 triples, 30 degrees and a tenth of the side, and finds first-order searches much
weaker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

import torch
from annotated_types import Interval
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from assay.attacks.adversarial.kernels.noise import draw
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import ask
from assay.attacks.sending import sent
from assay.attacks.threat import clip_to

__all__ = ["spatial"]

TASKS = ("classification",)
THREAT = {"knowledge": "black_box", "search": "iterative"}
TABLE = "attack"
PAPER = "Engstrom et al. 2019, Exploring the Landscape of Spatial Robustness"
PASSES = (
    "1 + (params.search == 'grid') * params.rotations * params.shifts * params.shifts"
    " + (params.search == 'random') * params.draws",
    "0",
)
# A transformation has no meaning for normalised images without a range.
PROTOCOLS = ("pixel",)

PaddingMode = Literal["zeros", "border", "reflection"]
Search = Literal["grid", "random"]


def spatial(
    *,
    max_rotation: Annotated[float, "strength", Interval(ge=0, le=180)] = 30.0,
    max_shift: Annotated[float, "strength", Interval(ge=0, le=1)] = 0.1,
    search: Search = "grid",
    rotations: Annotated[int, Interval(ge=1, le=1000)] = 31,
    shifts: Annotated[int, Interval(ge=1, le=100)] = 5,
    draws: Annotated[int, Interval(ge=1, le=100_000)] = 10,
    padding: PaddingMode = "zeros",
) -> Attack:
    """The worst rotation and translation of each image.

    Args:
        max_rotation: Largest angle, in degrees.
        max_shift: Largest shift, as a share of the side.
        search: Every triple of a grid, or triples drawn at random.
        rotations: Of the grid: how many angles; 1 is the angle 0.
        shifts: Of the grid: how many shifts in each direction; 1 is none.
        draws: Of `random`: how many triples.
        padding: Pixels beyond the image: black, those of the border, or its reflection.
    """
    if min(rotations, shifts, draws) < 1:
        raise ValueError(f"rotations ({rotations}), shifts ({shifts}) and draws ({draws}) must be at least 1")
    if not (0 <= max_rotation <= 180 and 0 <= max_shift <= 1):
        raise ValueError(
            f"max_rotation is {max_rotation}, allowed are 0 to 180;"
            f" max_shift is {max_shift}, allowed are 0 to 1"
        )
    for name, value, known in (("search", search, Search), ("padding", padding, PaddingMode)):
        if value not in get_args(known):
            raise ValueError(f"{name} is {value!r}, allowed are {', '.join(get_args(known))}")
    grid = _grid(max_rotation, max_shift, rotations, shifts) if search == "grid" else None
    return _Spatial(max_rotation, max_shift, draws if grid is None else len(grid), padding, grid)


def _grid(max_rotation: float, max_shift: float, rotations: int, shifts: int) -> Tensor:
    """All triples (angle in degrees, shift right, shift down), float64 (T, 3), the smallest angles first."""
    angles = _spread(max_rotation, rotations)
    places = _spread(max_shift, shifts)
    return torch.cartesian_prod(angles[angles.abs().argsort(stable=True)], places, places)


def _spread(largest: float, count: int) -> Tensor:
    if count == 1:
        return torch.zeros(1, dtype=torch.float64)
    return torch.linspace(-largest, largest, count, dtype=torch.float64)


def transformed(images: Tensor, triples: Tensor, padding: PaddingMode) -> Tensor:
    """Images (B, C, H, W) rotated counter-clockwise and then shifted, each by its own triple (B, 3).

    A triple has the angle in degrees and the shift to the right and down as shares of the sides.
    """
    height, width = images.shape[-2:]
    radians = triples[:, 0] * (math.pi / 180)
    cosine, sine = radians.cos(), radians.sin()
    right, down = 2 * triples[:, 1], 2 * triples[:, 2]
    # From places of the result to places of the image, in coordinates from -1 to 1 in each direction.
    ratio = height / width
    first = torch.stack([cosine, -sine * ratio, -cosine * right + sine * ratio * down], 1)
    second = torch.stack([sine / ratio, cosine, -sine / ratio * right - cosine * down], 1)
    matrix = torch.stack([first, second], 1).to(images)
    grid = affine_grid(matrix, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode=padding, align_corners=False)


@dataclass(frozen=True)
class _Spatial:
    """Evaluates one triple of every slot in each step; `restart` counts them."""

    max_rotation: float
    max_shift: float
    count: int
    padding: PaddingMode
    grid: Tensor | None
    name: ClassVar[str] = "spatial"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = False
    ball: ClassVar[None] = None

    def start(self, setting: Setting, examples: Examples) -> State:
        del setting  # nothing is drawn yet
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        images = state["images"]
        if self.grid is None:
            limits = torch.tensor([self.max_rotation, self.max_shift, self.max_shift]).to(images)
            triples = (2 * draw(setting, state, "uniform", (3,)) - 1) * limits
        else:
            triples = sent(self.grid[state["restart"]].to(images.dtype), images)
        moved = transformed(images, triples, self.padding)
        # Bilinear weights round to a hair above 1.
        state["adversarial"] = clip_to(moved, setting.box).view_as(images)
        logits, values = ask(model, state, Goal().objective(state["goal"]))
        record(setting, state, logits, values)
        state["restart"] += 1
        state["done"] = state["restart"] >= self.count
