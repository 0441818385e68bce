"""Plasma: a random landscape by the diamond-square algorithm, on a torus.

Fournier, Fussell and Carpenter 1982, "Computer Rendering of Stochastic Models". From one corner the grid is
halved repeatedly: the centre of each square gets the mean of its four corners plus a random number, then the
midpoint of each side the mean of its four neighbours plus a random number. The random numbers shrink by the
square of `decay` with each halving.

n = landscapes, N = side, a power of two; s x s = squares of a level.
"""

from __future__ import annotations

import torch
from torch import Tensor

HEIGHT = 100.0


def draws_needed(side: int) -> int:
    """Number of random draws for a landscape of N x N: all points except the corner."""
    return side**2 - 1


def plasma(chance: Tensor, side: int, decay: float) -> Tensor:
    """Landscapes between 0 and 1, float32 (n, N, N), N = `side`; zeros where N is 1.

    `chance` (n, N^2 - 1) is uniform in [-1, 1]: for each level the centres, then the middles of the left and
    right sides' lines (rows of the corners first), each row by row. Each halving divides the square root of
    the random numbers' size by `decay`.
    """
    count = len(chance)
    land = chance.new_zeros(count, side, side)
    step, height, used = side, HEIGHT, 0
    while step >= 2:
        half, size = step // 2, (side // step) ** 2
        squares = (count, side // step, side // step)
        centres, upper, left = (
            chance[:, used + part * size : used + (part + 1) * size].reshape(squares) * height**2
            for part in range(3)
        )
        corners = land[:, ::step, ::step]  # (n, s, s)
        rows = corners + corners.roll(-1, 1)
        middle = (rows + rows.roll(-1, 2)) / 4 + centres
        land[:, half::step, half::step] = middle
        # Midpoints of the horizontal sides are between two centres and two corners, like those of the others.
        land[:, ::step, half::step] = (middle + middle.roll(1, 1) + corners + corners.roll(-1, 2)) / 4 + upper
        land[:, half::step, ::step] = (middle + middle.roll(1, 2) + corners + corners.roll(-1, 1)) / 4 + left
        step, height, used = half, height / decay, used + 3 * size
    land -= land.amin((1, 2), keepdim=True)
    return land / land.amax((1, 2), keepdim=True).clamp(min=torch.finfo(land.dtype).tiny)
