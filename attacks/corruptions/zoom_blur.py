"""Zoom blur: the camera moves towards the scene; the mean of the image and its zooms.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). The factors are `numpy.arange(1, end, step)`, which
can exceed the end by a rounding error (1.11 at severity 1).

    x' = (x + sum_i zoom(x, f_i)) / (n + 1),    f_1 = 1, f_2 = 1 + step, ... f_n up to the end
    zoom: the middle enlarged
    end, step = ZOOMS[constants][severity - 1]
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import FORK, Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, SLACK, Corruption, Severity, cut, divided
from assay.attacks.corruptions.imaging.zoom import zoom_into_the_middle

__all__ = ["zoom_blur"]

PAPER = IMAGENET_C
FACTS = {"group": "blur", "milliseconds": 2.65}
# End and step of the factors.
ZOOMS: Released[tuple[float, float]] = {
    "imagenet_c": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "cifar_c": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "tiny_imagenet_c": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
}


def zoom_blur(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """A camera that moves forward.

    Args:
        severity: 1 to 5; in ImageNet-C zooms of up to 1.11, 1.15, 1.2, 1.24 and 1.3.
    """
    zooms = factors(*constant(constants, severity, ZOOMS))
    apply = functools.partial(_apply, factors=zooms, from_corner=constants == FORK)
    return Corruption("zoom_blur", severity, apply)


def factors(end: float, step: float) -> tuple[float, ...]:
    """1, 1 + step, ... up to the end, counted and rounded as by numpy."""
    rounded = (1 + step) - 1
    return tuple(1 + rounded * index for index in range(math.ceil((end - 1) / step)))


def _apply(levels: Tensor, *, factors: tuple[float, ...], from_corner: bool) -> Tensor:
    # Two of the terms are the image itself: it is added to its zooms, and the first zoom has factor 1.
    images = levels.contiguous(memory_format=torch.channels_last)  # twice as fast to interpolate
    total = images * 2
    for factor in factors[1:]:
        total += zoom_into_the_middle(images, factor, from_corner=from_corner)
    return cut(divided(total, len(factors) + 1), SLACK)  # (n, C, H, W)
