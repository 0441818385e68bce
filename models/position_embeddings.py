"""Learned position embeddings on another grid than the one that they were trained on.

B = batch, C = width, S = side of the square grid of patches; the embedding is (1, 1 + S * S, C), the class
token's row first, the patches row by row.

Ways to resize, all with half-pixel centres, as the code that weights come from does it: `bilinear`
(Segmenter, and our own `VisionTransformer`), `bicubic` (DeiT), `bicubic_antialias` (timm).
"""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor
from torch.nn.functional import interpolate

Resizing = Literal["bilinear", "bicubic", "bicubic_antialias"]


def side_of(shape: tuple[int, ...]) -> int | None:
    """S of an embedding of this shape; None for what is none of a class token and a square grid."""
    if len(shape) != 3 or shape[0] != 1 or shape[1] < 2:
        return None
    side = math.isqrt(shape[1] - 1)
    return side if side * side == shape[1] - 1 else None


def resize_positions(embedding: Tensor, side: int, how: Resizing) -> Tensor:
    """The embedding (1, 1 + S * S, C) on a grid of another side, (1, 1 + side * side, C); CLS stays.

    Raises:
        ValueError: it is no embedding of a class token and a square grid.
    """
    known = side_of(tuple(embedding.shape))
    if known is None:
        raise ValueError(
            f"no embedding of a class token and a square grid has the shape {tuple(embedding.shape)}"
        )
    plane = embedding[:, 1:].transpose(1, 2).unflatten(2, (known, known))  # (1, C, S, S)
    mode, _, antialias = how.partition("_")
    resized = interpolate(
        plane.float() if plane.dtype.itemsize < 4 else plane,  # halves are too coarse for the weights
        size=(side, side),
        mode=mode,
        align_corners=False,
        antialias=bool(antialias),
    )
    whole = embedding.new_empty(1, 1 + side * side, embedding.shape[2], dtype=resized.dtype)
    whole[:, :1] = embedding[:, :1]
    whole[:, 1:] = resized.flatten(2).transpose(1, 2)
    return whole
