"""The squares of the Square Attack: sizes, positions, and the pattern inside.

Andriushchenko et al. 2020, "Square Attack: a query-efficient black-box adversarial attack via random search",
algorithms 1 to 3 and equation 2 (the pattern of the L2 attack). As in the released code, unlike algorithm 2,
a square touches the last row and column only where it fills the image: positions are drawn without the upper
end.

B batch, H height, W width, s side of a square.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

# The share of changed pixels is halved after each of these queries, of 10 000.
HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
SCHEDULE_LENGTH = 10_000


def square_sizes(query: Tensor, height: int, width: int, share: float, *, smallest: int, odd: bool) -> Tensor:
    """The side of the square for each query, int64, at most the shorter side of the image.

    `query` is the number on the schedule of 10 000, int64 (...), on the CPU; the first squares cover `share`
    of the image. No side is below `smallest` where that fits; `odd` enlarges even sides by one where that
    fits.
    """
    halvings = torch.bucketize(query, torch.tensor(HALVINGS))
    return _size_table(height, width, share, smallest, odd)[halvings]


@lru_cache(maxsize=256)
def _size_table(height: int, width: int, share: float, smallest: int, odd: bool) -> Tensor:
    table = []
    for halvings in range(len(HALVINGS) + 1):
        side = max(round(math.sqrt(share / 2**halvings * height * width)), smallest)
        side += odd and side % 2 == 0
        table.append(min(side, height, width))
    return torch.tensor(table)


def positions(uniform: Tensor, length: int, sizes: Tensor | int) -> Tensor:
    """Turns draws in [0, 1) into first rows or columns of squares of these sizes, int64, like the draws."""
    return (uniform * (length - sizes)).long()


def covered(first: Tensor, sizes: Tensor | int, length: int) -> Tensor:
    """Marks the rows (or columns) of squares that begin at these: (...) to bool (..., length)."""
    place = torch.arange(length, device=first.device) - first[..., None]
    return (place >= 0) & (place < (sizes[..., None] if isinstance(sizes, Tensor) else sizes))


def inside(top: Tensor, left: Tensor, size: int, height: int, width: int) -> Tensor:
    """Marks the pixels of a square, one in each image: bool (B, 1, H, W)."""
    rows, columns = covered(top, size, height), covered(left, size, width)
    return (rows[:, :, None] & columns[:, None, :])[:, None]


def flat_index(top: Tensor, left: Tensor, size: int, width: int) -> Tensor:
    """The indices of a square's pixels in the flattened image, row by row: int64 (B, s * s)."""
    steps = torch.arange(size, device=top.device)
    rows, columns = top[:, None] + steps, left[:, None] + steps
    return (rows[:, :, None] * width + columns[:, None, :]).flatten(1)


@lru_cache(maxsize=256)
def pattern(size: int, norm: Literal["L2", "L1"] = "L2") -> Tensor:
    """The pattern in L2 or L1, norm 1, float32 (s, s) on the CPU: a hill above, its negative below."""
    upper = size // 2
    halves = torch.cat([_hill(upper, size, norm), -_hill(size - upper, size, norm)])
    return halves / _length(halves, norm)


def _hill(height: int, width: int, norm: Literal["L2", "L1"]) -> Tensor:
    """Sums 1 / k^2 (L1: 1 / k^4) over centred squares of side 2k - 1 that hold a pixel (equation 2)."""
    rows = (torch.arange(height) - height // 2).abs()
    columns = (torch.arange(width) - width // 2).abs()
    distance = torch.maximum(rows[:, None], columns[None])
    hill = torch.zeros(height, width)
    for reach in range(max(height, width) // 2 + 1):
        hill += (distance <= reach) / torch.tensor(float(reach + 1)).pow(2 if norm == "L2" else 4)
    return hill / _length(hill, norm)


def _length(values: Tensor, norm: Literal["L2", "L1"]) -> Tensor:
    return values.square().sum().sqrt() if norm == "L2" else values.abs().sum()


def tiles(height: int, width: int) -> tuple[int, list[tuple[int, int]]]:
    """The start of the L2 attack: the side of its tiles, and their first rows and columns.

    The released code fails where the tiles don't fit. Here those on the border are cut off.
    """
    side = max(1, min(height // 5, width))
    top = max(0, (height - 5 * side) // 2)
    left = min(top, width - side)
    rows = [top + side * number for number in range(height // side)]
    columns = [left + side * number for number in range(width // side)]
    return side, [(row, column) for row in rows for column in columns]
