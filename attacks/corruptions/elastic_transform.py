"""Elastic transform: small regions are stretched and squeezed.

Simard et al. 2003, "Best Practices for Convolutional Neural Networks Applied to Visual Document Analysis",
section 2, with the constants of the maintained code of ImageNet-C (`imagecorruptions`): a field of uniform
displacements, smoothed over 1 % of the image's side. The affine part of the first release is omitted.

    x'(u) = x(u + d(u)),    d = a 0.005 H (Gaussian(0.01 side) * e),    e ~ U(-1, 1)
    a = STRENGTHS[severity - 1],    H = height

n = images, C = channels, H x W = size.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from assay.attacks.corruptions.imaging.corruption import SLACK, Corruption, Draws, Severity, at, cut
from assay.attacks.corruptions.imaging.draws import symmetric
from assay.attacks.corruptions.imaging.filters import blur

__all__ = ["elastic_transform"]

PAPER = (
    "Simard et al. 2003, Best Practices for Convolutional Neural Networks Applied to Visual Document Analysis"
)
FACTS = {"group": "digital", "milliseconds": 2.23}
STRENGTHS = (250 * 0.05, 250 * 0.065, 250 * 0.085, 250 * 0.1, 250 * 0.12)
# Max displacement before smoothing and scaling, as a fraction of the height; the smoothing, as a fraction of
# either side.
DISPLACEMENT = 0.005
SMOOTHING = 0.01
TRUNCATE = 3.0


def elastic_transform(*, severity: Severity = 1) -> Corruption:
    """Stretched and squeezed regions.

    Args:
        severity: 1 to 5; displacements of up to 12.5, 16.25, 21.25, 25 and 30 times 0.5 % of the height,
            before they are smoothed.

    Raises:
        ValueError: If there is no such severity.
    """
    apply = functools.partial(_apply, strength=at(severity, STRENGTHS))
    return Corruption("elastic_transform", severity, apply, _draw)


def _draw(generator: torch.Generator, channels: int, height: int, width: int) -> Draws:
    del channels
    return (symmetric(generator, 2, height, width),)  # across, then down


def _apply(levels: Tensor, field: Tensor, *, strength: float) -> Tensor:
    height, width = levels.shape[-2:]
    smooth = blur(field, (SMOOTHING * height, SMOOTHING * width), "symmetric", TRUNCATE)
    across, down = (smooth * (DISPLACEMENT * height * strength)).unbind(1)  # (n, H, W), in pixels
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
    moved = grid_sample(levels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    return cut(moved, SLACK)  # (n, C, H, W)
