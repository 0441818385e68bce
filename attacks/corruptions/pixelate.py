"""Pixelate: the image is downscaled by box averages, and upscaled again to blocks.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). A CPU resizes by Pillow, as the released code; other
devices average by two products with Pillow's own weights, whole numbers in 2^-22, and round after each as
Pillow does: levels are equal. The fork upscales by the nearest pixel; the two differ by a few columns at some
sizes, not at 32, 64 and 224 pixels.

    x' = box(box(x, int(s H) x int(s W)), H x W)
    s = SCALES[constants][severity - 1]
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import FORK, Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, Corruption, Severity
from assay.attacks.corruptions.imaging.pillow import each_picture

__all__ = ["pixelate"]

PAPER = IMAGENET_C
FACTS = {"group": "digital", "milliseconds": 0.47}
SCALES: Released[float] = {
    "imagenet_c": (0.6, 0.5, 0.4, 0.3, 0.25),
    "cifar_c": (0.95, 0.9, 0.85, 0.75, 0.65),
    "tiny_imagenet_c": (0.9, 0.8, 0.7, 0.6, 0.5),
}
WEIGHT_BITS = 22
CPU = torch.device("cpu")


def pixelate(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Few, large pixels.

    Args:
        severity: 1 to 5; in ImageNet-C 0.6, 0.5, 0.4, 0.3 and 0.25 of the pixels along a side are kept.
    """
    enlarge = Image.Resampling.NEAREST if constants == FORK else Image.Resampling.BOX
    apply = functools.partial(_apply, scale=constant(constants, severity, SCALES), enlarge=enlarge)
    return Corruption("pixelate", severity, apply)


def _apply(levels: Tensor, *, scale: float, enlarge: Image.Resampling) -> Tensor:
    height, width = levels.shape[-2:]
    rows, columns = (max(1, int(side * scale)) for side in (height, width))
    across, down = (columns, width), (rows, height)
    if levels.device.type == "cpu":
        # The nearest pixel is faster, and at most sizes the same.
        nearest, lines = Image.Resampling.NEAREST, (across, down)
        if enlarge != nearest and all(
            torch.equal(_sources(*line, enlarge), _sources(*line, nearest)) for line in lines
        ):
            enlarge = nearest
        box, small, whole = Image.Resampling.BOX, (columns, rows), (width, height)
        return each_picture(levels, lambda picture: picture.resize(small, box).resize(whole, enlarge))
    averages = shrunk(levels, rows, columns)  # (n, C, rows, columns)
    along = averages.index_select(-1, _sources(*across, enlarge, levels.device))
    return along.index_select(-2, _sources(*down, enlarge, levels.device))  # (n, C, H, W)


def shrunk(levels: Tensor, rows: int, columns: int) -> Tensor:
    """Box averages of levels (n, C, H, W), whole numbers (n, C, rows, columns), by products of matrices."""
    down, across = (
        _weights(old, new, levels.device) for old, new in zip(levels.shape[-2:], (rows, columns), strict=True)
    )
    averages = (levels.double() @ across).add_(0.5).floor_()  # each row, then each column
    return (down.T @ averages).add_(0.5).floor_().to(levels.dtype)


@functools.lru_cache(maxsize=32)
def _weights(old: int, new: int, device: torch.device) -> Tensor:
    """Weight of each old pixel of a line in each new pixel, float64 (old, new), as Pillow rounds it."""
    units = Image.fromarray(np.eye(old, dtype=np.int32) << WEIGHT_BITS)
    weights = np.asarray(units.resize((new, old), Image.Resampling.BOX), np.float64)
    return torch.from_numpy(weights / 2**WEIGHT_BITS).to(device)


@functools.lru_cache(maxsize=32)
def _sources(old: int, new: int, enlarge: Image.Resampling, device: torch.device = CPU) -> Tensor:
    """The old pixel of a line that each new pixel shows, int64 (new,): an enlarging box holds one pixel."""
    places = Image.fromarray(np.arange(old, dtype=np.int32)[None])
    return torch.from_numpy(np.asarray(places.resize((new, 1), enlarge), np.int64)[0]).to(device)
