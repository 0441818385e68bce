"""Elastic transform: a random affine map, then small regions are stretched and squeezed.

Simard et al. 2003, "Best Practices for Convolutional Neural Networks Applied to Visual Document Analysis",
section 2, as in Hendrycks and Dietterich 2019 (`imaging/corruption.py`): three points move, and the image
with them; then every pixel moves by a smoothed field of displacements. The fork has no affine map, and other
constants: smoothing over 1 % of the image's side.

    x'(u) = x(A(u + d(u))),    A: maps three moved points back,    each moved by r e in either direction
    d = a Gaussian(s) * e,    e ~ U(-1, 1)
    a, s, r = STRENGTHS[constants][severity - 1], in pixels
    fork: a = 0.005 H times the first number, s = 0.01 times either side

n = images, C = channels, H x W = size.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from assay.attacks.corruptions.imaging.affine import triangle, warp
from assay.attacks.corruptions.imaging.constants import FORK, Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import SLACK, Corruption, Draws, Severity, cut
from assay.attacks.corruptions.imaging.draws import symmetric
from assay.attacks.corruptions.imaging.filters import blur, smooth_widely
from assay.attacks.randomness import Source

__all__ = ["elastic_transform"]

PAPER = (
    "Simard et al. 2003, Best Practices for Convolutional Neural Networks Applied to Visual Document Analysis"
)
FACTS = {"group": "digital", "milliseconds": 2.23}
# Size of the displacements, standard deviation of their smoothing, movement of the points.
STRENGTHS: Released[tuple[float, float, float]] = {
    "imagenet_c": (
        (244 * 2, 244 * 0.7, 244 * 0.1),
        (244 * 2, 244 * 0.08, 244 * 0.2),
        (244 * 0.05, 244 * 0.01, 244 * 0.02),
        (244 * 0.07, 244 * 0.01, 244 * 0.02),
        (244 * 0.12, 244 * 0.01, 244 * 0.02),
    ),
    "cifar_c": (
        (0, 0, 32 * 0.08),
        (32 * 0.05, 32 * 0.2, 32 * 0.07),
        (32 * 0.08, 32 * 0.06, 32 * 0.06),
        (32 * 0.1, 32 * 0.04, 32 * 0.05),
        (32 * 0.1, 32 * 0.03, 32 * 0.03),
    ),
    "tiny_imagenet_c": (
        (0, 0, 64 * 0.08),
        (64 * 0.05, 64 * 0.3, 64 * 0.06),
        (64 * 0.1, 64 * 0.08, 64 * 0.06),
        (64 * 0.1, 64 * 0.03, 64 * 0.03),
        (64 * 0.16, 64 * 0.03, 64 * 0.02),
    ),
    "imagecorruptions": tuple((250 * share, 0, 0) for share in (0.05, 0.065, 0.085, 0.1, 0.12)),
}
# The fork's: max displacement as a fraction of the height; the smoothing, as a fraction of either side.
DISPLACEMENT = 0.005
SMOOTHING = 0.01
TRUNCATE = 3.0


def elastic_transform(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """A skewed image, with stretched and squeezed regions.

    Args:
        severity: 1 to 5; the first two skew and bend the whole image, the others stretch small regions.
    """
    strength = constant(constants, severity, STRENGTHS)
    if constants == FORK:
        apply = functools.partial(_apply_fork, strength=strength[0])
        return Corruption("elastic_transform", severity, apply, _draw_field)
    return Corruption("elastic_transform", severity, functools.partial(_apply, strength=strength), _draw)


def _draw(source: Source, channels: int, height: int, width: int) -> Draws:
    return (symmetric(source, 3, 2, purpose="points"), *_draw_field(source, channels, height, width))


def _draw_field(source: Source, channels: int, height: int, width: int) -> Draws:
    del channels
    return (symmetric(source, 2, height, width),)  # across, then down


def _apply(levels: Tensor, moves: Tensor, field: Tensor, *, strength: tuple[float, float, float]) -> Tensor:
    size, sigma, reach = strength
    corners = triangle(*levels.shape[-2:]).to(levels.device, non_blocking=True)
    skewed = warp(levels, corners, corners + (moves.double() * reach).float())
    if size == 0:
        return cut(skewed, SLACK)
    return cut(_moved(skewed, smooth_widely(field.double(), sigma, TRUNCATE) * size), SLACK)  # (n, C, H, W)


def _apply_fork(levels: Tensor, field: Tensor, *, strength: float) -> Tensor:
    height, width = levels.shape[-2:]
    smooth = blur(field, (SMOOTHING * height, SMOOTHING * width), "symmetric", TRUNCATE)
    return cut(_moved(levels, smooth * (DISPLACEMENT * height * strength)), SLACK)  # (n, C, H, W)


def _moved(levels: Tensor, shifts: Tensor) -> Tensor:
    """Each pixel from its place plus a shift (n, 2, H, W) in pixels, across and down."""
    height, width = levels.shape[-2:]
    across, down = shifts.float().unbind(1)  # (n, H, W)
    rows = torch.arange(height, dtype=torch.float32, device=levels.device)[:, None]
    columns = torch.arange(width, dtype=torch.float32, device=levels.device)
    # grid_sample counts from -1, the outer edge of the first pixel, to 1, the outer edge of the last.
    grid = torch.stack(
        [
            (columns + across).mul_(2 / width).add_(1 / width - 1),
            (rows + down).mul_(2 / height).add_(1 / height - 1),
        ],
        dim=-1,
    )
    return grid_sample(levels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
