"""Defocus blur: correlation with a disk, the image of a point that is out of focus.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). As in the released code the disk is embedded in a
square of at least 17 x 17, at whose borders its smoothing is mirrored; where the disk touches them
(severities 4 and 5) the kernel's sum slightly exceeds 1, which brightens the image.

    x' = x * k,    k = Gaussian(sigma) * disk(r)
    r, sigma = DISKS[constants][severity - 1]
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, SLACK, Corruption, Severity, cut
from assay.attacks.corruptions.imaging.filters import correlate, extend, gaussian_weights

__all__ = ["defocus_blur"]

PAPER = IMAGENET_C
FACTS = {"group": "blur", "milliseconds": 1.57}
# Radius of the disk, standard deviation of its smoothing, both in pixels.
DISKS: Released[tuple[float, float]] = {
    "imagenet_c": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "cifar_c": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "tiny_imagenet_c": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
}
MIN_HALF_WIDTH = 8
# Means over few pixels are often whole levels, where the kernel's rounding decides: those are in float64.
SMALL = 3


def defocus_blur(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Everything out of focus.

    Args:
        severity: 1 to 5; in ImageNet-C disks of radius 3, 4, 6, 8 and 10 pixels.
    """
    radius, sigma = constant(constants, severity, DISKS)
    return Corruption("defocus_blur", severity, functools.partial(_apply, radius=radius, sigma=sigma))


def _apply(levels: Tensor, *, radius: float, sigma: float) -> Tensor:
    kernel = disk(radius, sigma)
    half = len(kernel) // 2
    # The kernel is rounded to float32; if its sum falls below 1, a flat area drops by a level.
    slack = SLACK if float(kernel.double().sum()) >= 1 else -SLACK
    kernel = kernel.to(levels.device, non_blocking=True)
    extended = extend(levels, (half, half), (half, half), "mirror")
    if radius < SMALL:
        return cut(correlate(extended.double(), kernel.double()).contiguous()).to(levels.dtype)
    return cut(correlate(extended, kernel).contiguous(), slack)  # (n, C, H, W)


@functools.lru_cache(maxsize=16)
def disk(radius: float, sigma: float) -> Tensor:
    """The smoothed disk, (2 h + 1, 2 h + 1) with h the larger of the radius and 8, float32."""
    half = max(math.ceil(radius), MIN_HALF_WIDTH)
    distances = torch.arange(-half, half + 1)
    inside = (distances[:, None] ** 2 + distances**2 <= radius**2).to(torch.float64)
    reach = 1 if half == MIN_HALF_WIDTH else 2
    weights = gaussian_weights(sigma, reach)
    padded = extend((inside / inside.sum())[None], (reach, reach), (reach, reach), "mirror")[0]
    across = padded.unfold(1, 2 * reach + 1, 1) @ weights
    smoothed: Tensor = across.unfold(0, 2 * reach + 1, 1) @ weights
    return smoothed.to(torch.float32)
