"""Gaussian blur.

Hendrycks and Dietterich 2019, appendix B: one of the four extra corruptions. Border pixels are replicated;
the kernel is truncated at four standard deviations.

    x' = Gaussian(sigma) * x
    sigma = SIGMAS[constants][severity - 1]
"""

from __future__ import annotations

import functools

from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, SLACK, Corruption, Severity, cut
from assay.attacks.corruptions.imaging.filters import blur

__all__ = ["gaussian_blur"]

PAPER = IMAGENET_C
FACTS = {"group": "extra", "milliseconds": 1.52}
SIGMAS: Released[float] = {
    "imagenet_c": (1.0, 2.0, 3.0, 4.0, 6.0),
    "cifar_c": (0.4, 0.6, 0.7, 0.8, 1.0),
    "tiny_imagenet_c": (0.5, 0.75, 1.0, 1.25, 1.5),
}


def gaussian_blur(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """A smooth blur.

    Args:
        severity: 1 to 5; in ImageNet-C standard deviations of 1, 2, 3, 4 and 6 pixels.
    """
    return Corruption(
        "gaussian_blur", severity, functools.partial(_apply, sigma=constant(constants, severity, SIGMAS))
    )


def _apply(levels: Tensor, *, sigma: float) -> Tensor:
    return cut(blur(levels, (sigma, sigma), "clamp").contiguous(), SLACK)  # (n, C, H, W)
