"""Fog: a random landscape of brightness is added, and the sum scaled back.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`).

    x' = (x + c f) m / (m + c),    f = a random landscape,    m = the largest value of x
    c, decay of f's details = FOGS[constants][severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Draws, Severity, cut
from assay.attacks.corruptions.imaging.draws import symmetric
from assay.attacks.randomness import Source

__all__ = ["fog"]

PAPER = IMAGENET_C
FACTS = {"group": "weather", "milliseconds": 1.14}
# Thickness c, and how fast the landscape's details fade.
FOGS: Released[tuple[float, float]] = {
    "imagenet_c": ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    "cifar_c": ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    "tiny_imagenet_c": ((0.4, 3.0), (0.7, 3.0), (1.0, 2.5), (1.5, 2.0), (2.0, 1.75)),
}


def fog(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Uneven fog.

    Args:
        severity: 1 to 5; in ImageNet-C thickness 1.5, 2, 2.5, 2.5 and 3, the last three with more detail.
    """
    thickness, decay = constant(constants, severity, FOGS)
    return Corruption("fog", severity, functools.partial(_apply, thickness=thickness, decay=decay), _draw)


def side_of(height: int, width: int) -> int:
    """Side of the landscape that covers an image: a power of two."""
    return int(2 ** (max(height, width) - 1).bit_length())


def _draw(source: Source, channels: int, height: int, width: int) -> Draws:
    del channels
    return (symmetric(source, draws_needed(side_of(height, width))),)


def _apply(levels: Tensor, chance: Tensor, *, thickness: float, decay: float) -> Tensor:
    height, width = levels.shape[-2:]
    land = plasma(chance, side_of(height, width), decay)[:, None, :height, :width]
    top = levels.amax((1, 2, 3), keepdim=True)
    return cut((levels + TOP * thickness * land) * (top / (top + TOP * thickness)))  # (n, C, H, W)


HEIGHT = 100.0


def draws_needed(side: int) -> int:
    """Number of random draws for a landscape of N x N: all points except the corner."""
    return side**2 - 1


def plasma(chance: Tensor, side: int, decay: float) -> Tensor:
    """Random landscapes between 0 and 1 on a torus, float32 (n, N, N), N = `side`; zeros where N is 1.

    The diamond-square algorithm: Fournier, Fussell and Carpenter 1982, "Computer Rendering of Stochastic
    Models". From one corner the grid is halved repeatedly: the centre of each square gets the mean of its
    four corners plus a random number, then the midpoint of each side the mean of its four neighbours plus a
    random number. N is a power of two.

    `chance` (n, N^2 - 1) is uniform in [-1, 1]: for each level the centres, then the middles of the left and
    right sides' lines (rows of the corners first), each row by row. Each halving divides the square root of
    the random numbers' size by `decay`.
    """
    count = len(chance)
    land = chance.new_zeros(count, 1, 1)
    size, height = 1, HEIGHT  # land has the corners of s x s squares
    while size < side:
        used = size**2 - 1
        news = chance[:, used : used + 3 * size**2].view(count, 3, size, size) * height**2
        centres, upper, left = news.unbind(1)
        beside, below = land.roll(-1, 2), land.roll(-1, 1)
        middle = centres.add_((land + below).add_(beside + below.roll(-1, 2)), alpha=0.25)
        # Midpoints of the horizontal sides are between two centres and two corners, like the other midpoints.
        upper.add_((middle + middle.roll(1, 1)).add_(land).add_(beside), alpha=0.25)
        left.add_((middle + middle.roll(1, 2)).add_(land).add_(below), alpha=0.25)
        rows = torch.stack([land, upper], dim=-1), torch.stack([left, middle], dim=-1)
        land = torch.stack(rows, dim=2).view(count, 2 * size, 2 * size)
        size, height = 2 * size, height / decay
    land -= land.amin((1, 2), keepdim=True)
    return land / land.amax((1, 2), keepdim=True).clamp(min=torch.finfo(land.dtype).tiny)
