"""Gaussian blur.

Hendrycks and Dietterich 2019, appendix B: one of the four extra corruptions. Border pixels are replicated;
the kernel is truncated at four standard deviations.

    x' = Gaussian(sigma) * x
    sigma = SIGMAS[severity - 1]
"""

from __future__ import annotations

import functools

from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, SLACK, Corruption, Severity, at, cut
from assay.attacks.corruptions.imaging.filters import blur

__all__ = ["gaussian_blur"]

PAPER = IMAGENET_C
FACTS = {"group": "extra", "milliseconds": 1.52}
SIGMAS = (1.0, 2.0, 3.0, 4.0, 6.0)


def gaussian_blur(*, severity: Severity = 1) -> Corruption:
    """A smooth blur.

    Args:
        severity: 1 to 5; standard deviations of 1, 2, 3, 4 and 6 pixels.

    Raises:
        ValueError: If there is no such severity.
    """
    return Corruption("gaussian_blur", severity, functools.partial(_apply, sigma=at(severity, SIGMAS)))


def _apply(levels: Tensor, *, sigma: float) -> Tensor:
    return cut(blur(levels, (sigma, sigma), "clamp").contiguous(), SLACK)  # (n, C, H, W)
