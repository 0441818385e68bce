"""JPEG compression at low quality.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). The levels are Pillow's on every device
(`imaging/jpeg.py`).

    x' = decoded(encoded(x, quality))
    quality = QUALITIES[constants][severity - 1]
"""

from __future__ import annotations

import functools

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, Corruption, Severity
from assay.attacks.corruptions.imaging.jpeg import recompressed

__all__ = ["jpeg_compression"]

PAPER = IMAGENET_C
FACTS = {"group": "digital", "milliseconds": 0.84}
QUALITIES: Released[int] = {
    "imagenet_c": (25, 18, 15, 10, 7),
    "cifar_c": (80, 65, 58, 50, 40),
    "tiny_imagenet_c": (65, 58, 50, 40, 25),
}


def jpeg_compression(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """The blocks and ringing of small JPEG files.

    Args:
        severity: 1 to 5; in ImageNet-C qualities 25, 18, 15, 10 and 7.
    """
    apply = functools.partial(recompressed, quality=constant(constants, severity, QUALITIES))
    return Corruption("jpeg_compression", severity, apply)
