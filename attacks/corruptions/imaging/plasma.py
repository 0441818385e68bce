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
    land = chance.new_zeros(count, 1, 1)
    size, height = 1, HEIGHT  # land has the corners of s x s squares
    while size < side:
        used = size**2 - 1
        news = chance[:, used : used + 3 * size**2].view(count, 3, size, size) * height**2
        centres, upper, left = news.unbind(1)
        beside, below = land.roll(-1, 2), land.roll(-1, 1)
        middle = centres.add_((land + below).add_(beside + below.roll(-1, 2)), alpha=0.25)
        # Midpoints of the horizontal sides are between two centres and two corners, like those of the others.
        upper.add_((middle + middle.roll(1, 1)).add_(land).add_(beside), alpha=0.25)
        left.add_((middle + middle.roll(1, 2)).add_(land).add_(below), alpha=0.25)
        rows = torch.stack([land, upper], dim=-1), torch.stack([left, middle], dim=-1)
        land = torch.stack(rows, dim=2).view(count, 2 * size, 2 * size)
        size, height = 2 * size, height / decay
    land -= land.amin((1, 2), keepdim=True)
    return land / land.amax((1, 2), keepdim=True).clamp(min=torch.finfo(land.dtype).tiny)
