"""Speckle noise: x + sigma x z, with z standard normal in every value (noise proportional to brightness).

Hendrycks and Dietterich 2019, appendix B: one of the four extra corruptions.

    x' = x + sigma x z,    z ~ N(0, 1)
    sigma = SIGMAS[constants][severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, Corruption, Draws, Severity, cut
from assay.attacks.randomness import Source

__all__ = ["speckle_noise"]

PAPER = IMAGENET_C
FACTS = {"group": "extra", "milliseconds": 0.68}
SIGMAS: Released[float] = {
    "imagenet_c": (0.15, 0.2, 0.35, 0.45, 0.6),
    "cifar_c": (0.06, 0.1, 0.12, 0.16, 0.2),
    "tiny_imagenet_c": (0.15, 0.2, 0.25, 0.3, 0.35),
}


def speckle_noise(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Normal noise in proportion to the value.

    Args:
        severity: 1 to 5; in ImageNet-C standard deviations of 0.15, 0.2, 0.35, 0.45 and 0.6 of the value.
    """
    apply = functools.partial(_apply, sigma=constant(constants, severity, SIGMAS))
    return Corruption("speckle_noise", severity, apply, _draw)


def _draw(source: Source, channels: int, height: int, width: int) -> Draws:
    return (source.normal((channels, height, width)),)


def _apply(levels: Tensor, noise: Tensor, *, sigma: float) -> Tensor:
    return cut(torch.addcmul(levels, levels, noise, value=sigma))  # (n, C, H, W)
