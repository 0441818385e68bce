"""Spatter: drops of rain on the lens (severities 1 to 3), or mud (4 and 5).

Hendrycks and Dietterich 2019, appendix B: one of the four extra corruptions. Rain is bright along the edges
of drops (`imaging/water.py`) and pale turquoise; mud is brown and opaque. Single-channel images get the grey
of these colours.

    n = Gaussian(sigma) * (m + d z),    z ~ N(0, 1)
    rain    x' = x + c l turquoise,      l = shaded drops where n is at least t, scaled to 1
    mud     x' = (1 - a) x + a brown,    a = Gaussian(c) * [n > t], 0 below 0.8
    m, d, sigma, t, c, rain or mud = LIQUIDS[constants][severity - 1]

n = images, C = channels, H x W = size.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import (
    IMAGENET_C,
    SLACK,
    TOP,
    Corruption,
    Draws,
    Severity,
    cut,
    luminance,
)
from assay.attacks.corruptions.imaging.filters import blur
from assay.attacks.corruptions.imaging.water import shading
from assay.attacks.randomness import Source

__all__ = ["spatter"]

PAPER = IMAGENET_C
FACTS = {"group": "extra", "milliseconds": 9.81}
TURQUOISE = (175.0, 238.0, 238.0)
BROWN = (63.0, 42.0, 20.0)
COVERED = 0.8


@dataclass(frozen=True)
class _Liquid:
    mean: float
    deviation: float
    sigma: float
    threshold: float
    strength: float  # of rain: how bright; of mud: standard deviation of the smoothing of its edge, in pixels
    mud: bool


LIQUIDS: Released[_Liquid] = {
    "imagenet_c": (
        _Liquid(0.65, 0.3, 4, 0.69, 0.6, False),
        _Liquid(0.65, 0.3, 3, 0.68, 0.6, False),
        _Liquid(0.65, 0.3, 2, 0.68, 0.5, False),
        _Liquid(0.65, 0.3, 1, 0.65, 1.5, True),
        _Liquid(0.67, 0.4, 1, 0.65, 1.5, True),
    ),
    "cifar_c": (
        _Liquid(0.62, 0.1, 0.7, 0.7, 0.5, False),
        _Liquid(0.65, 0.1, 0.8, 0.7, 0.5, False),
        _Liquid(0.65, 0.3, 1, 0.69, 0.5, False),
        _Liquid(0.65, 0.1, 0.7, 0.69, 0.6, True),
        _Liquid(0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    "tiny_imagenet_c": (
        _Liquid(0.62, 0.1, 0.7, 0.7, 0.6, False),
        _Liquid(0.65, 0.1, 0.8, 0.7, 0.6, False),
        _Liquid(0.65, 0.3, 1, 0.69, 0.6, False),
        _Liquid(0.65, 0.1, 0.7, 0.68, 0.6, True),
        _Liquid(0.65, 0.1, 0.5, 0.67, 0.6, True),
    ),
}


def spatter(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Rain or mud on the lens.

    Args:
        severity: 1 to 5; three strengths of rain, then two of mud.
    """
    apply = functools.partial(_apply, liquid=constant(constants, severity, LIQUIDS))
    return Corruption("spatter", severity, apply, _draw)


def _draw(source: Source, channels: int, height: int, width: int) -> Draws:
    del channels
    return (source.normal((1, height, width)),)


def _apply(levels: Tensor, noise: Tensor, *, liquid: _Liquid) -> Tensor:
    # In float64: a difference of a level would move edges.
    smooth = blur(noise.double() * liquid.deviation + liquid.mean, (liquid.sigma, liquid.sigma), "clamp")
    if liquid.mud:
        return _mud(levels, smooth, liquid)
    return _rain(levels, smooth, liquid)


def _rain(levels: Tensor, smooth: Tensor, liquid: _Liquid) -> Tensor:
    # The released code casts to bytes without clipping; values above 1 wrap around to 0.
    drops = (
        (smooth.masked_fill(smooth < liquid.threshold, 0) * TOP).floor_().remainder_(TOP + 1).to(levels.dtype)
    )
    light = drops * shading(drops)  # (n, 1, H, W)
    light /= light.amax((2, 3), keepdim=True).clamp(min=1)
    return cut(levels + light * liquid.strength * _colour(TURQUOISE, levels), SLACK)  # (n, C, H, W)


def _mud(levels: Tensor, smooth: Tensor, liquid: _Liquid) -> Tensor:
    drops = (smooth > liquid.threshold).to(levels.dtype)
    cover = blur(drops, (liquid.strength, liquid.strength), "clamp")
    cover = cover.masked_fill(cover < COVERED, 0)  # (n, 1, H, W)
    return cut(levels * (1 - cover) + cover * _colour(BROWN, levels), SLACK)  # (n, C, H, W)


def _colour(colour: tuple[float, float, float], levels: Tensor) -> Tensor:
    tint = torch.tensor(colour, dtype=levels.dtype).view(1, 3, 1, 1).to(levels.device, non_blocking=True)
    return luminance(tint) if levels.shape[1] == 1 else tint
