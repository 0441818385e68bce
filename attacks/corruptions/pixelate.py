"""Pixelate: the image is downscaled by box averages, and upscaled again without smoothing.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". Resized by Pillow on the CPU, so that the bytes match the released code.

    x' = nearest(box(x, int(s H) x int(s W)), H x W)
    s = SCALES[severity - 1]
"""

from __future__ import annotations

import functools

from PIL import Image
from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, Corruption, Severity, at
from assay.attacks.corruptions.imaging.pillow import each_picture

__all__ = ["pixelate"]

PAPER = IMAGENET_C
FACTS = {"group": "digital", "milliseconds": 0.47}
SCALES = (0.6, 0.5, 0.4, 0.3, 0.25)


def pixelate(*, severity: Severity = 1) -> Corruption:
    """Few, large pixels.

    Args:
        severity: 1 to 5; 0.6, 0.5, 0.4, 0.3 and 0.25 of the pixels along a side are kept.

    Raises:
        ValueError: If there is no such severity.
    """
    return Corruption("pixelate", severity, functools.partial(_apply, scale=at(severity, SCALES)))


def _apply(levels: Tensor, *, scale: float) -> Tensor:
    return each_picture(levels, functools.partial(_pixelated, scale=scale))  # (n, C, H, W)


def _pixelated(picture: Image.Image, scale: float) -> Image.Image:
    width, height = picture.size
    small = picture.resize((max(1, int(width * scale)), max(1, int(height * scale))), Image.Resampling.BOX)
    return small.resize((width, height), Image.Resampling.NEAREST)
