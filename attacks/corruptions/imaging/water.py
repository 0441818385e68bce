"""Shading of rain drops: bright along their edges, from one side.

The steps are those of the released code, which calls OpenCV: edges, the distance to the nearest edge, its
histogram equalised, and a small filter that is dark towards the upper left. Edges are those of Canny 1986,
"A Computational Approach to Edge Detection", and distances the chamfer metric of Borgefors 1986, "Distance
Transformations in Digital Images", with steps of 1, 1.4 and 2.1969 to neighbours, diagonal neighbours and
knight's moves.

n = images, H x W = size; everything is float32 of shape (n, 1, H, W).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d, pad

from assay.attacks.corruptions.imaging.corruption import TOP
from assay.attacks.corruptions.imaging.filters import extend

FARTHEST = 20.0
LOW, HIGH = 50.0, 150.0
# Steps (down, across, length) of a distance.
STEPS = tuple(
    (down, across, {1: 1.0, 2: 1.4, 5: 2.1969}[down**2 + across**2])
    for down in (-2, -1, 0, 1, 2)
    for across in (-2, -1, 0, 1, 2)
    if down**2 + across**2 in (1, 2, 5)
)
LIGHT_FROM_BELOW = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))
# Tangents that separate horizontal, diagonal and vertical gradients.
FLAT, STEEP = 2**0.5 - 1, 2**0.5 + 1


def shading(drops: Tensor) -> Tensor:
    """Brightness of each pixel of the drops, from their levels (whole numbers in 0..255)."""
    distance = distance_to(canny(drops)).clamp_(max=FARTHEST)
    even = equalised(box(distance).floor_())
    kernel = torch.tensor(LIGHT_FROM_BELOW, device=drops.device)[None, None]
    lit = conv2d(extend(even, (1, 1), (1, 1), "mirror"), kernel).clamp_(0, TOP)
    return box(lit).round_()


def box(values: Tensor) -> Tensor:
    """Mean of each pixel and its eight neighbours; borders are mirrored."""
    return avg_pool2d(extend(values, (1, 1), (1, 1), "mirror"), 3, stride=1)


def canny(levels: Tensor) -> Tensor:
    """Edges, boolean: ridges of the gradient's L1 norm above 50 that are connected to one above 150."""
    extended = extend(levels, (1, 1), (1, 1), "clamp")
    smooth = extended.new_tensor([1.0, 2.0, 1.0])
    slope = extended.new_tensor([-1.0, 0.0, 1.0])
    across = conv2d(extended, (smooth[:, None] * slope)[None, None])
    down = conv2d(extended, (slope[:, None] * smooth)[None, None])
    size = across.abs() + down.abs()
    strong = _ridges(size, across, down) & (size > LOW)
    edges = strong & (size > HIGH)
    while True:
        grown = (max_pool2d(edges.float(), 3, stride=1, padding=1) > 0) & strong
        if torch.equal(grown, edges):
            return edges
        edges = grown


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
    """Chamfer distance of each pixel to the nearest marked one, exact up to 20, at least 20 beyond."""
    height, width = marked.shape[-2:]
    distance = torch.full(marked.shape, 2 * FARTHEST, device=marked.device).masked_fill_(marked, 0)
    while True:
        around = pad(distance, (2, 2, 2, 2), value=2 * FARTHEST)
        nearer = distance
        for down, across, length in STEPS:
            neighbour = around[..., 2 + down : 2 + down + height, 2 + across : 2 + across + width]
            nearer = torch.minimum(nearer, neighbour + length)
        if torch.equal(nearer, distance):
            return distance
        distance = nearer


def equalised(levels: Tensor) -> Tensor:
    """Histogram equalisation: levels spread evenly over 0 to 255, the smallest present becoming 0."""
    flat = levels.flatten(1).long()
    image = torch.arange(len(flat), device=flat.device)[:, None] * (TOP + 1)
    counts = torch.bincount((flat + image).flatten(), minlength=len(flat) * (TOP + 1)).view(
        len(flat), TOP + 1
    )
    first = flat.amin(1, keepdim=True)
    least = counts.gather(1, first)
    rest = counts.sum(1, keepdim=True) - least  # (n, 1), pixels above the smallest level
    places = counts.cumsum(1) - least
    table = (places * (TOP / rest.clamp(min=1).float())).round().clamp(0, TOP)
    even = torch.where(rest == 0, flat.to(table.dtype), table.gather(1, flat))
    return even.view_as(levels)
