"""Contrast: every value moves towards the mean of its channel.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). In float64: whole levels must be hit exactly before
truncation.

    x' = s (x - m) + m,    m = the mean of the channel
    s = SHARES[constants][severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Severity, cut, divided

__all__ = ["contrast"]

PAPER = IMAGENET_C
FACTS = {"group": "digital", "milliseconds": 0.44}
SHARES: Released[float] = {
    "imagenet_c": (0.4, 0.3, 0.2, 0.1, 0.05),
    "cifar_c": (0.75, 0.5, 0.4, 0.3, 0.15),
    "tiny_imagenet_c": (0.4, 0.3, 0.2, 0.1, 0.05),
}


def contrast(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Little contrast, as in bad light.

    Args:
        severity: 1 to 5; in ImageNet-C 40, 30, 20, 10 and 5 % of the contrast are kept.
    """
    return Corruption(
        "contrast", severity, functools.partial(_apply, share=constant(constants, severity, SHARES))
    )


def _apply(levels: Tensor, *, share: float) -> Tensor:
    pixels = levels.shape[-2] * levels.shape[-1]
    # A sum of levels is exact, so the mean does not depend on the order of the summation.
    sums = levels.sum((-2, -1), dtype=torch.float64)[..., None, None]  # (n, C, 1, 1)
    means = divided(divided(sums, pixels), TOP)
    moved = (divided(levels.double(), TOP).sub_(means)).mul_(share).add_(means)
    return cut(moved.mul_(TOP)).to(levels.dtype)  # (n, C, H, W)
