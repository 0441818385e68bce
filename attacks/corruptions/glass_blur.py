"""Glass blur: pixels swap places with their neighbours, between two Gaussian blurs (frosted glass).

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). Swaps: `imaging/shuffle.py`. Border pixels are
replicated. In float64: values are truncated to levels between the blurs, and a level lost there would be lost
twice.

    x' = Gaussian(sigma) * moved(Gaussian(sigma) * x)
    moved: rounds times, from the last pixel to the first, x(u) <- x(u + d)
    d ~ U{-reach, ..., reach - 1} down and across; pixels near the border stay
    sigma, reach, rounds = GLASSES[constants][severity - 1]
"""

from __future__ import annotations

import functools

from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import (
    IMAGENET_C,
    TOP,
    Corruption,
    Draws,
    Severity,
    cut,
    divided,
)
from assay.attacks.corruptions.imaging.filters import blur_exactly
from assay.attacks.corruptions.imaging.shuffle import draw_offsets, shuffle
from assay.attacks.randomness import Source

__all__ = ["glass_blur"]

PAPER = IMAGENET_C
FACTS = {"group": "blur", "milliseconds": 5.55}
# Standard deviation of the blurs in pixels, reach of an exchange in pixels, rounds of exchanges.
GLASSES: Released[tuple[float, int, int]] = {
    "imagenet_c": ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "cifar_c": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "tiny_imagenet_c": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
}


def glass_blur(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """A scene behind frosted glass.

    Args:
        severity: 1 to 5; in ImageNet-C blurs of standard deviation 0.7, 0.9, 1, 1.1 and 1.5 pixels,
            exchanges over up to 1, 2, 2, 3 and 4 pixels.
    """
    sigma, reach, rounds = constant(constants, severity, GLASSES)
    apply = functools.partial(_apply, sigma=sigma, reach=reach)
    return Corruption("glass_blur", severity, apply, functools.partial(_draw, reach=reach, rounds=rounds))


def _draw(source: Source, channels: int, height: int, width: int, *, reach: int, rounds: int) -> Draws:
    del channels
    return (draw_offsets(source, rounds, height, width, reach),)


def _apply(levels: Tensor, offsets: Tensor, *, sigma: float, reach: int) -> Tensor:
    shuffled = shuffle(_blurred(levels, sigma), offsets, reach)
    return _blurred(shuffled, sigma)  # (n, C, H, W)


def _blurred(levels: Tensor, sigma: float) -> Tensor:
    return cut(blur_exactly(divided(levels.double(), TOP), sigma).mul_(TOP)).to(levels.dtype)
