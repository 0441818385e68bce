"""JPEG compression at low quality.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". Compressed by Pillow on the CPU, so that the bytes match the released code. Grey images are
compressed as colour images, as there: the luminance tables are the same.

    x' = decoded(encoded(x, quality))
    quality = QUALITIES[constants][severity - 1]
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from io import BytesIO

from PIL import Image
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, Corruption, Severity
from assay.attacks.corruptions.imaging.pillow import each_picture

__all__ = ["jpeg_compression"]

PAPER = IMAGENET_C
FACTS = {"group": "digital", "milliseconds": 0.84}
QUALITIES: Mapping[Constants, Sequence[int]] = {
    "imagenet_c": (25, 18, 15, 10, 7),
    "cifar_c": (80, 65, 58, 50, 40),
    "tiny_imagenet_c": (65, 58, 50, 40, 25),
}


def jpeg_compression(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """The blocks and ringing of small JPEG files.

    Args:
        severity: 1 to 5; in ImageNet-C qualities 25, 18, 15, 10 and 7.
        constants: Which released script's constants.
    """
    return Corruption(
        "jpeg_compression",
        severity,
        functools.partial(_apply, quality=constant(constants, severity, QUALITIES)),
    )


def _apply(levels: Tensor, *, quality: int) -> Tensor:
    return each_picture(levels, functools.partial(compressed, quality=quality))  # (n, C, H, W)


def compressed(picture: Image.Image, quality: int) -> Image.Image:
    """A picture after it was written as a JPEG file of a quality, and read again."""
    file = BytesIO()
    picture.convert("RGB").save(file, "JPEG", quality=quality)
    return Image.open(file).convert(picture.mode)
