"""Pixelate: the image is downscaled by box averages, and upscaled again to blocks.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". Resized by Pillow on the CPU, so that the bytes match the released code. The fork upscales by
the nearest pixel; the two differ by a few columns at some sizes, not at 32, 64 and 224 pixels.

    x' = box(box(x, int(s H) x int(s W)), H x W)
    s = SCALES[constants][severity - 1]
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from PIL import Image

from assay.attacks.corruptions.imaging.constants import FORK, Constants, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, Corruption, Severity
from assay.attacks.corruptions.imaging.pillow import each_picture

__all__ = ["pixelate"]

PAPER = IMAGENET_C
FACTS = {"group": "digital", "milliseconds": 0.47}
SCALES: Mapping[Constants, Sequence[float]] = {
    "imagenet_c": (0.6, 0.5, 0.4, 0.3, 0.25),
    "cifar_c": (0.95, 0.9, 0.85, 0.75, 0.65),
    "tiny_imagenet_c": (0.9, 0.8, 0.7, 0.6, 0.5),
}


def pixelate(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Few, large pixels.

    Args:
        severity: 1 to 5; in ImageNet-C 0.6, 0.5, 0.4, 0.3 and 0.25 of the pixels along a side are kept.
        constants: Which released script's constants.
    """
    enlarge = Image.Resampling.NEAREST if constants == FORK else Image.Resampling.BOX
    change = functools.partial(_pixelated, scale=constant(constants, severity, SCALES), enlarge=enlarge)
    return Corruption("pixelate", severity, functools.partial(each_picture, change=change))


def _pixelated(picture: Image.Image, scale: float, enlarge: Image.Resampling) -> Image.Image:
    width, height = picture.size
    small = picture.resize((max(1, int(width * scale)), max(1, int(height * scale))), Image.Resampling.BOX)
    return small.resize((width, height), enlarge)
