"""Snow: flakes that fall quickly, and a paler scene.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). Flakes are the bright parts of normal noise, enlarged
and smeared down (`imaging/motion.py`). The scene keeps a share; the rest is the larger of itself and 1.5
times its grey plus a half. The authors truncate flakes to levels before and after they smear them, the fork
smears the enlarged noise before it is cropped.

    x' = k x + (1 - k) max(x, 1.5 grey(x) + 0.5) + s + s rotated by 180 degrees
    s = streaks of zoom(m + d z) where that is at least t,    z ~ N(0, 1)
    m, d, factor of zoom, t, radius and sigma of the streaks, k = FALLS[constants][severity - 1]

n = images, C = channels, H x W = size, h x w = the enlarged part of the noise.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import FORK, Constants, Released, constant
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
from assay.attacks.corruptions.imaging.draws import between
from assay.attacks.corruptions.imaging.motion import MAGICK_SLACK, smear
from assay.attacks.corruptions.imaging.zoom import cropped, trimmed, zoom
from assay.attacks.randomness import Source

__all__ = ["snow"]

PAPER = IMAGENET_C
FACTS = {"group": "weather", "milliseconds": 1.76}
ANGLES = (-135.0, -45.0)


@dataclass(frozen=True)
class _Snowfall:
    mean: float
    deviation: float
    zoom: float
    threshold: float
    radius: int
    sigma: float
    kept: float


FALLS: Released[_Snowfall] = {
    "imagenet_c": (
        _Snowfall(0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        _Snowfall(0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        _Snowfall(0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        _Snowfall(0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        _Snowfall(0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "cifar_c": (
        _Snowfall(0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        _Snowfall(0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        _Snowfall(0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        _Snowfall(0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        _Snowfall(0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "tiny_imagenet_c": (
        _Snowfall(0.1, 0.2, 1, 0.6, 8, 3, 0.8),
        _Snowfall(0.1, 0.2, 1, 0.5, 10, 4, 0.8),
        _Snowfall(0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
        _Snowfall(0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
        _Snowfall(0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
    ),
}


def snow(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Falling snow.

    Args:
        severity: 1 to 5; denser and longer flakes, and less of the scene.
    """
    fall = constant(constants, severity, FALLS)
    apply = functools.partial(_apply, fall=fall, fork=constants == FORK)
    return Corruption("snow", severity, apply, functools.partial(_draw, fall=fall))


def _draw(source: Source, channels: int, height: int, width: int, *, fall: _Snowfall) -> Draws:
    del channels
    # Only the centre of the noise is visible after the enlargement, so only that is drawn.
    size = cropped(height, fall.zoom), cropped(width, fall.zoom)
    return between(source, *ANGLES), source.normal(size)


def _apply(levels: Tensor, angles: Tensor, noise: Tensor, *, fall: _Snowfall, fork: bool) -> Tensor:
    height, width = levels.shape[-2:]
    flakes = zoom((noise * fall.deviation + fall.mean)[:, None], fall.zoom)  # (n, 1, >= H, >= W)
    flakes = flakes.masked_fill(flakes < fall.threshold, 0).clamp_(0, 1)
    if not fork:
        flakes = trimmed(flakes, height, width, from_corner=False).mul(TOP).floor_()
    flakes = smear(flakes, fall.radius, fall.sigma, angles, ANGLES, inside=fork)[..., :height, :width]
    flakes = (flakes * TOP).round_() if fork else cut(flakes.contiguous(), MAGICK_SLACK)
    pale = torch.maximum(levels, 1.5 * luminance(levels) + TOP / 2)
    scene = fall.kept * levels + (1 - fall.kept) * pale
    return cut(scene + (flakes + flakes.flip((-2, -1))), SLACK)  # (n, C, H, W)
