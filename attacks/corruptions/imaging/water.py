"""Shading of rain drops: bright along their edges, from one side.

The released code's steps, which call OpenCV: edges, the distance to the nearest edge, its histogram
equalised, and a small filter that is dark towards the upper left. Edges are by Canny 1986, "A Computational
Approach to Edge Detection", and distances the chamfer metric of Borgefors 1986, "Distance Transformations in
Digital Images", with steps of 1, 1.4 and 2.1969 to neighbours, diagonal neighbours and knight's moves.

n = images, H x W = size; everything is float32 of shape (n, 1, H, W).
"""

from __future__ import annotations

import functools
import itertools

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from assay.attacks.corruptions.imaging.corruption import TOP
from assay.attacks.corruptions.imaging.filters import extend

FARTHEST = 20.0
LOW, HIGH = 50.0, 150.0
REACH = int(FARTHEST)
# Steps (down, across, length) of a distance, away from the nearest marked pixel.
STEPS = ((0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.4), (1, 2, 2.1969), (2, 1, 2.1969))
ROUNDS = 8  # of the growth of edges between two looks whether it goes on
# Tangents that separate horizontal, diagonal and vertical gradients.
FLAT, STEEP = 2**0.5 - 1, 2**0.5 + 1


def shading(drops: Tensor) -> Tensor:
    """Brightness of each pixel of the drops, from their levels (whole numbers in 0..255)."""
    distance = distance_to(canny(drops)).clamp_(max=FARTHEST)
    even = equalised(box(distance).floor_())
    around = extend(even, (1, 1), (1, 1), "mirror")
    # A kernel of rows -2 -1 0, -1 1 1 and 0 1 2: all are whole numbers, exact in any order.
    falling = around[..., 2:, 2:] - around[..., :-2, :-2]
    sides = around[..., 1:-1, 2:] - around[..., 1:-1, :-2] + around[..., 2:, 1:-1] - around[..., :-2, 1:-1]
    lit = sides.add_(falling, alpha=2).add_(even).clamp_(0, TOP)
    return box(lit).round_()


def box(values: Tensor) -> Tensor:
    """Mean of each pixel and its eight neighbours; borders are mirrored."""
    around = extend(values, (1, 1), (1, 1), "mirror")
    if values.device.type != "cpu":
        return avg_pool2d(around, 3, stride=1)
    # The same sum in the same order, in a third of the time of a CPU's pooling.
    height, width = values.shape[-2:]
    total = torch.zeros_like(values)
    for down, across in itertools.product(range(3), repeat=2):
        total += around[..., down : down + height, across : across + width]
    return total.div_(9)


def canny(levels: Tensor) -> Tensor:
    """Edges, boolean: ridges of the gradient's L1 norm above 50 that are connected to one above 150."""
    around = extend(levels, (1, 1), (1, 1), "clamp")
    slope = around[..., 2:] - around[..., :-2]
    across = slope[..., :-2, :] + slope[..., 2:, :] + 2 * slope[..., 1:-1, :]
    slope = around[..., 2:, :] - around[..., :-2, :]
    down = slope[..., :-2] + slope[..., 2:] + 2 * slope[..., 1:-1]
    size = across.abs() + down.abs()
    strong = _ridges(size, across, down) & (size > LOW)
    edges = strong & (size > HIGH)
    while True:
        before = edges
        for _ in range(ROUNDS):
            edges = _spread(_spread(edges, -1), -2) & strong
        if torch.equal(edges, before):
            return edges


def _spread(marked: Tensor, axis: int) -> Tensor:
    spread, inner = marked.clone(), marked.shape[axis] - 1
    spread.narrow(axis, 1, inner).logical_or_(marked.narrow(axis, 0, inner))
    spread.narrow(axis, 0, inner).logical_or_(marked.narrow(axis, 1, inner))
    return spread


def _ridges(size: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Local maxima of the gradient along its own direction; the first of two equal neighbours."""
    around = pad(size, (1, 1, 1, 1))
    height, width = size.shape[-2:]

    def next_to(rows: int, columns: int) -> Tensor:
        return around[..., 1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    x, y = across.abs(), down.abs()
    falling = (across < 0) != (down < 0)  # the gradient points to the upper right or lower left
    flat = (y < FLAT * x) & (size > next_to(0, -1)) & (size >= next_to(0, 1))
    steep = (y > STEEP * x) & (size > next_to(-1, 0)) & (size >= next_to(1, 0))
    first = torch.where(falling, next_to(-1, 1), next_to(-1, -1))
    last = torch.where(falling, next_to(1, -1), next_to(1, 1))
    diagonal = (y >= FLAT * x) & (y <= STEEP * x) & (size > first) & (size > last)
    return flat | steep | diagonal


def distance_to(marked: Tensor) -> Tensor:
    """Chamfer distance of each pixel to the nearest marked one, exact up to 20, at least 20 beyond.

    From any row only its nearest marked pixel counts: so many columns across, clamped, are looked up in the
    distances of a row so many rows away.
    """
    height, width = marked.shape[-2:]
    columns = torch.arange(width, dtype=torch.int32, device=marked.device)
    nowhere = marked.shape[-1] + REACH
    last = torch.where(marked, columns, -nowhere).cummax(-1).values
    following = torch.where(marked.flip(-1), columns, -nowhere).cummax(-1).values.flip(-1)
    across = torch.minimum(columns - last, width - 1 - columns - following).clamp_(max=REACH + 1)
    around = pad(across, (0, 0, REACH, REACH), value=REACH + 1)
    table = _distances(marked.device)
    distance = torch.full(marked.shape, 2 * FARTHEST, device=marked.device)
    for rows in range(min(REACH, height - 1) + 1):
        above, below = (around.narrow(-2, REACH + turn * rows, height) for turn in (-1, 1))
        beyond = table[rows].index_select(0, torch.minimum(above, below).flatten()).view_as(distance)
        torch.minimum(distance, beyond, out=distance)
    return distance


@functools.lru_cache(maxsize=4)
def _distances(device: torch.device) -> Tensor:
    """Chamfer distance of pixels so many rows and columns apart, (REACH + 1, REACH + 2)."""
    distance = torch.full((REACH + 1, REACH + 2), 2 * FARTHEST)
    distance[0, 0] = 0
    for _ in range(REACH):  # each distance up to 20 has no more steps
        around = pad(distance, (2, 0, 2, 0), value=2 * FARTHEST)
        for down, across, length in STEPS:
            neighbour = around[2 - down : 3 - down + REACH, 2 - across : 4 - across + REACH]
            distance = torch.minimum(distance, neighbour + length)
    distance[:, -1] = 2 * FARTHEST
    return distance.to(device)


def equalised(levels: Tensor) -> Tensor:
    """Histogram equalisation: levels spread evenly over 0 to 255, the smallest present becoming 0."""
    flat = levels.flatten(1).long()
    counts = flat.new_zeros(len(flat), TOP + 1).scatter_add_(1, flat, torch.ones_like(flat))
    first = flat.amin(1, keepdim=True)
    least = counts.gather(1, first)
    rest = counts.sum(1, keepdim=True) - least  # (n, 1), pixels above the smallest level
    places = counts.cumsum(1) - least
    table = (places * (TOP / rest.clamp(min=1).float())).round().clamp(0, TOP)
    even = torch.where(rest == 0, flat.to(table.dtype), table.gather(1, flat))
    return even.view_as(levels)
