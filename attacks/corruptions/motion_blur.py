"""Motion blur: the camera moves quickly, in a direction at most 45 degrees from the horizontal.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". The kernel is that of `imaging/motion.py`.

    x'(u) = sum_i w_i x(u + i (cos a, sin a)),    a ~ U(-45, 45) degrees
    w_i = exp(-i^2 / (2 sigma^2)) / sum_i exp(-i^2 / (2 sigma^2)),    i = 0 .. 2 radius
    radius, sigma = LINES[severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import (
    IMAGENET_C,
    SLACK,
    Corruption,
    Draws,
    Severity,
    at,
    cut,
)
from assay.attacks.corruptions.imaging.draws import between
from assay.attacks.corruptions.imaging.motion import smear

__all__ = ["motion_blur"]

PAPER = IMAGENET_C
FACTS = {"group": "blur", "milliseconds": 1.85}
# Radius of the line, standard deviation of its weights, both in pixels.
LINES = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))
ANGLES = (-45.0, 45.0)


def motion_blur(*, severity: Severity = 1) -> Corruption:
    """Streaks along a random direction.

    Args:
        severity: 1 to 5; streaks of standard deviation 3, 5, 8, 12 and 15 pixels.

    Raises:
        ValueError: If there is no such severity.
    """
    radius, sigma = at(severity, LINES)
    return Corruption("motion_blur", severity, functools.partial(_apply, radius=radius, sigma=sigma), _draw)


def _draw(generator: torch.Generator, channels: int, height: int, width: int) -> Draws:
    del channels, height, width
    return (between(generator, *ANGLES),)


def _apply(levels: Tensor, angles: Tensor, *, radius: int, sigma: float) -> Tensor:
    return cut(smear(levels, radius, sigma, angles, ANGLES).contiguous(), SLACK)  # (n, C, H, W)
