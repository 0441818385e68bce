"""Motion blur: the camera moves quickly, in a direction at most 45 degrees from the horizontal.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). The taps are in `imaging/motion.py`; the result is
truncated to levels.

    x'(u) = sum_i w_i x(u + i (cos a, sin a)),    a ~ U(-45, 45) degrees
    w_i = exp(-i^2 / (2 sigma^2)) / sum_i exp(-i^2 / (2 sigma^2)),    i = 0 .. 2 radius
    radius, sigma = LINES[constants][severity - 1]
"""

from __future__ import annotations

import functools

from torch import Tensor

from assay.attacks.corruptions.imaging.constants import FORK, Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, SLACK, Corruption, Draws, Severity, cut
from assay.attacks.corruptions.imaging.draws import between
from assay.attacks.corruptions.imaging.motion import MAGICK_SLACK, smear
from assay.attacks.randomness import Source

__all__ = ["motion_blur"]

PAPER = IMAGENET_C
FACTS = {"group": "blur", "milliseconds": 1.85}
# Radius of the line, standard deviation of its weights, both in pixels.
LINES: Released[tuple[int, float]] = {
    "imagenet_c": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "cifar_c": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "tiny_imagenet_c": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
}
ANGLES = (-45.0, 45.0)


def motion_blur(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Streaks along a random direction.

    Args:
        severity: 1 to 5; in ImageNet-C streaks of standard deviation 3, 5, 8, 12 and 15 pixels.
    """
    radius, sigma = constant(constants, severity, LINES)
    apply = functools.partial(_apply, radius=radius, sigma=sigma, fork=constants == FORK)
    return Corruption("motion_blur", severity, apply, _draw)


def _draw(source: Source, channels: int, height: int, width: int) -> Draws:
    del channels, height, width
    return (between(source, *ANGLES),)


def _apply(levels: Tensor, angles: Tensor, *, radius: int, sigma: float, fork: bool) -> Tensor:
    smeared = smear(levels, radius, sigma, angles, ANGLES, inside=fork)
    return cut(smeared.contiguous(), SLACK if fork else MAGICK_SLACK)  # (n, C, H, W)
