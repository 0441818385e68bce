"""Impulse noise: a few values are replaced by black or white (salt and pepper, bit errors).

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). The channels of a pixel are hit independently. One
32-bit word decides each value.

    x' = 1 with probability p/2, 0 with probability p/2, else x
    p = AMOUNTS[constants][severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Draws, Severity
from assay.attacks.randomness import Source

__all__ = ["impulse_noise"]

PAPER = IMAGENET_C
FACTS = {"group": "noise", "milliseconds": 0.98}
AMOUNTS: Released[float] = {
    "imagenet_c": (0.03, 0.06, 0.09, 0.17, 0.27),
    "cifar_c": (0.01, 0.02, 0.03, 0.05, 0.07),
    "tiny_imagenet_c": (0.01, 0.02, 0.05, 0.08, 0.14),
}


def impulse_noise(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Single values turned black or white.

    Args:
        severity: 1 to 5; in ImageNet-C 3, 6, 9, 17 and 27 % of the values are replaced.
    """
    apply = functools.partial(_apply, amount=constant(constants, severity, AMOUNTS))
    return Corruption("impulse_noise", severity, apply, _draw)


def _draw(source: Source, channels: int, height: int, width: int) -> Draws:
    return (source.words((channels, height, width)),)


def _apply(levels: Tensor, chance: Tensor, *, amount: float) -> Tensor:
    lowest, half = -(2**31), round(amount / 2 * 2**32)
    # Comparisons into float32 take a fifth of the time of masks on a CPU.
    kept = torch.ge(chance, lowest + 2 * half, out=torch.empty_like(levels))
    salt = torch.lt(chance, lowest + half, out=torch.empty_like(levels))
    return kept.mul_(levels).add_(salt, alpha=TOP)  # (n, C, H, W)
