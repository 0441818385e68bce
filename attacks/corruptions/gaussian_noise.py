"""Gaussian noise: x + sigma z, with z standard normal in every value (sensor noise in low light).

Hendrycks and Dietterich 2019 (`imaging/corruption.py`).

    x' = x + sigma z,    z ~ N(0, 1)
    sigma = SIGMAS[constants][severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Draws, Severity, cut
from assay.attacks.randomness import Source

__all__ = ["gaussian_noise"]

PAPER = IMAGENET_C
FACTS = {"group": "noise", "milliseconds": 0.74}
SIGMAS: Released[float] = {
    "imagenet_c": (0.08, 0.12, 0.18, 0.26, 0.38),
    "cifar_c": (0.04, 0.06, 0.08, 0.09, 0.1),
    "tiny_imagenet_c": (0.04, 0.08, 0.12, 0.15, 0.18),
}


def gaussian_noise(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Normal noise of the same size in every value.

    Args:
        severity: 1 to 5; in ImageNet-C standard deviations of 0.08, 0.12, 0.18, 0.26, 0.38 of the range.
    """
    apply = functools.partial(_apply, sigma=constant(constants, severity, SIGMAS))
    return Corruption("gaussian_noise", severity, apply, _draw)


def _draw(source: Source, channels: int, height: int, width: int) -> Draws:
    return (source.normal((channels, height, width)),)


def _apply(levels: Tensor, noise: Tensor, *, sigma: float) -> Tensor:
    return cut(torch.add(levels, noise, alpha=TOP * sigma))  # (n, C, H, W)
