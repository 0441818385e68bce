"""Resizing of learned position embeddings to another grid.

Methods, all with half-pixel centres, as in the code of the respective weights: `bilinear` (Segmenter, and our
own `VisionTransformer`), `bicubic` (DeiT), `bicubic_antialias` (timm).

C = width, h and w = height and width of the grid of patches.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from assay.models.layers.heads import Grid

Resizing = Literal["bilinear", "bicubic", "bicubic_antialias"]


def square_grid(shape: tuple[int, ...]) -> Grid | None:
    """Grid of an embedding of this shape; None unless it is a class token and a square grid."""
    if len(shape) != 3 or shape[0] != 1 or shape[1] < 2:
        return None
    side = math.isqrt(shape[1] - 1)
    return (side, side) if side * side == shape[1] - 1 else None


def resize_positions(positions: Tensor, grid: Grid, wanted: Grid, how: Resizing = "bilinear") -> Tensor:
    """Position embedding (1, 1 + h * w, C) of a grid (h, w) resized to another; the class token's is kept."""
    if grid == wanted:
        return positions
    plane = positions[:, 1:].transpose(1, 2).unflatten(2, grid)  # (1, C, h, w)
    mode, _, antialias = how.partition("_")
    resized = interpolate(plane, size=wanted, mode=mode, align_corners=False, antialias=bool(antialias))
    return torch.cat([positions[:, :1], resized.flatten(2).transpose(1, 2)], dim=1)
