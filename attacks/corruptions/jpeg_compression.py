"""JPEG compression at low quality.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". Compressed by Pillow on the CPU, so that the bytes match the released code. Grey images are
compressed as colour images, as there: the luminance tables are the same.

    x' = decoded(encoded(x, quality))
    quality = QUALITIES[severity - 1]
"""

from __future__ import annotations

import functools
from io import BytesIO

from PIL import Image
from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, Corruption, Severity, at
from assay.attacks.corruptions.imaging.pillow import each_picture

__all__ = ["jpeg_compression"]

PAPER = IMAGENET_C
FACTS = {"group": "digital", "milliseconds": 0.84}
QUALITIES = (25, 18, 15, 10, 7)


def jpeg_compression(*, severity: Severity = 1) -> Corruption:
    """The blocks and ringing of small JPEG files.

    Args:
        severity: 1 to 5; qualities 25, 18, 15, 10 and 7.

    Raises:
        ValueError: If there is no such severity.
    """
    return Corruption(
        "jpeg_compression", severity, functools.partial(_apply, quality=at(severity, QUALITIES))
    )


def _apply(levels: Tensor, *, quality: int) -> Tensor:
    return each_picture(levels, functools.partial(_compressed, quality=quality))  # (n, C, H, W)


def _compressed(picture: Image.Image, quality: int) -> Image.Image:
    file = BytesIO()
    picture.convert("RGB").save(file, "JPEG", quality=quality)
    return Image.open(file).convert(picture.mode)
