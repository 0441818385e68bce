"""Resizing of images as two matrix products, with Pillow's filters: the same on every device, differentiable.

    y_i = sum_j w_ij x_j    along the width, then along the height
    w_ij = f((j + 1/2 - (i + 1/2) s) / max(s, 1)), divided by sum_j w_ij;    s = input size / output size
    f(t) = 1 - |t|                                   bilinear, |t| < 1
    f(t) = 1.5 |t|^3 - 2.5 |t|^2 + 1                 bicubic, |t| < 1
    f(t) = -0.5 |t|^3 + 2.5 |t|^2 - 4 |t| + 2        bicubic, 1 <= |t| < 2
    f(t) = sinc(t) sinc(t / 3)                       lanczos, |t| < 3
    f(t) = 1                                         box, -1/2 < t <= 1/2
    f(t) = sinc(t) (0.54 + 0.46 cos(pi t))           hamming, |t| < 1
    nearest: w_ij = 1 for the pixel j = floor((i + 1/2) s)

Deviation: Pillow and torchvision round to 8 bits after each direction, which has no gradient; here nothing is
rounded. torch's own antialiased `interpolate` has no deterministic gradient on CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def _cubic(t: Tensor) -> Tensor:
    near = 1.5 * t**3 - 2.5 * t**2 + 1
    far = -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
    return torch.where(t < 1, near, torch.where(t < 2, far, 0.0))


# By the distance t.
FILTERS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "box": lambda t: ((t > -0.5) & (t <= 0.5)).double(),
    "bilinear": lambda t: (1 - t.abs()).clamp(min=0),
    "hamming": lambda t: torch.where(t.abs() < 1, t.sinc() * (0.54 + 0.46 * (math.pi * t).cos()), 0.0),
    "bicubic": lambda t: _cubic(t.abs()),
    "lanczos": lambda t: torch.where(t.abs() < 3, t.sinc() * (t / 3).sinc(), 0.0),
}
NEAREST = "nearest"
# Pillow's numbers, which configurations use.
RESAMPLING = {0: NEAREST, 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def resizing_matrix(before: int, after: int, resample: str) -> Tensor:
    """The weights of a resizing along one direction, float64 (after, before); each row sums to 1."""
    scale = before / after
    centres = (torch.arange(after, dtype=torch.float64) + 0.5) * scale
    if resample == NEAREST:
        chosen = centres.floor().long().clamp(max=before - 1)
        return torch.nn.functional.one_hot(chosen, before).double()
    distances = torch.arange(before, dtype=torch.float64) + 0.5 - centres[:, None]
    weights = FILTERS[resample](distances / max(scale, 1.0))
    return weights / weights.sum(dim=1, keepdim=True)


def resize_images(
    images: Tensor, size: tuple[int, int], resample: str, edges: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Images (B, C, H, W) of any range, resized to (B, C, *size); the same object where nothing changes.

    `resample` is a filter, or nearest. Edges are the least and the largest value, (1, C, 1, 1) each, to which
    results are clipped after each direction.
    """
    height, width = images.shape[-2:]
    if width != size[1]:
        columns = resizing_matrix(width, size[1], resample).to(images)
        images = _clipped(images @ columns.T, edges)
    if height != size[0]:
        rows = resizing_matrix(height, size[0], resample).to(images)
        images = _clipped(rows @ images, edges)
    return images


def _clipped(images: Tensor, edges: tuple[Tensor, Tensor] | None) -> Tensor:
    return images if edges is None else images.maximum(edges[0].to(images)).minimum(edges[1].to(images))
