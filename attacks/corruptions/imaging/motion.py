"""Motion blur: each pixel becomes an average over a line of pixels that starts at it.

Taps i = 0, 1, ... are at the whole pixels next to i (cos a, sin a), weighted by half a Gaussian in i. Border
pixels are replicated. These are ImageMagick's taps, which the authors call. The fork drops taps at a distance
of the image's size or more, which darkens images smaller than the kernel.

n = images, C = channels, H x W = size, T = taps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.filters import correlate, extend

# ImageMagick rounds to the nearest of 65536 values, and its PNG files truncate these to levels.
MAGICK_SLACK = 0.5 / 257


def smear(
    fields: Tensor,
    radius: int,
    sigma: float,
    angles: Tensor,
    between: tuple[float, float],
    *,
    inside: bool = False,
) -> Tensor:
    """Motion blur of fields (n, C, H, W), float32, each at its own angle in degrees, (n,).

    A line has 2 radius + 1 taps, and `sigma` is in taps; 0 degrees smear towards the left, positive angles
    upwards as well. `between`, the least and the largest angle that can occur, determines the size of the
    transforms: an image's rounding does not depend on the others. With `inside` only taps nearer than the
    image's size count, as in the fork.
    """
    height, width = fields.shape[-2:] if inside else (2 * radius + 1, 2 * radius + 1)
    down, across, weights = taps(radius, sigma, angles, height, width)
    (top, bottom), (left, right) = _window(2 * radius, between, height, width)
    kernels = weights.new_zeros(len(angles), 1, top + bottom + 1, left + right + 1)
    images = torch.arange(len(angles), device=angles.device)[:, None].expand_as(down)
    kernels.index_put_(
        (images, torch.zeros_like(images), down + top, across + left), weights, accumulate=True
    )
    extended = extend(fields, (top, bottom), (left, right), "clamp")
    return correlate(extended, kernels.to(torch.float32))


def taps(radius: int, sigma: float, angles: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets of the taps down and across, int64 (n, T), and their weights, float64 (n, T).

    They are 0 from the first tap at a distance of `height` or `width`.
    """
    steps = torch.arange(2 * radius + 1, dtype=torch.float64, device=angles.device)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights = weights / weights.sum()
    radians = torch.deg2rad(angles.to(torch.float64))[:, None]
    # Halves are rounded down.
    down = torch.ceil(steps * torch.sin(radians) - 0.5).long()
    across = torch.ceil(steps * torch.cos(radians) - 0.5).long()
    outside = (down.abs() >= height) | (across.abs() >= width)
    inside = outside.long().cumsum(1) == 0
    return down * inside, across * inside, weights * inside


def _window(
    length: int, between: tuple[float, float], height: int, width: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    angles = [*between, *(turn for turn in (-180, -90, 0, 90, 180) if between[0] < turn < between[1])]
    radians = [math.radians(angle) for angle in angles]
    down = [math.ceil(length * math.sin(angle) - 0.5) for angle in radians]
    across = [math.ceil(length * math.cos(angle) - 0.5) for angle in radians]
    return _reach(down, height), _reach(across, width)


def _reach(offsets: list[int], side: int) -> tuple[int, int]:
    return min(max(0, -min(offsets)), side - 1), min(max(0, *offsets), side - 1)
