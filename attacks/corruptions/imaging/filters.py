"""Correlation of images with kernels by Fourier transforms, and padding at the borders.

A transform costs the same for every kernel, and takes a kernel for each image of a batch. On a CPU images are
transformed one by one: for some lengths (32 among them, on some processors) the library rounds differently in
a batch.

n = images, C = channels, H x W = size, h x w = size of a kernel.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

Border = Literal["clamp", "mirror", "symmetric"]


def correlate(fields: Tensor, kernels: Tensor) -> Tensor:
    """Valid-mode correlation: out[y, x] = sum of kernel[i, j] * field[y + i, x + j].

    Fields (n, C, H, W), float32 or float64, and kernels (h, w), or (n, 1, h, w) for one per image, give
    (n, C, H - h + 1, W - w + 1).
    """
    if fields.device.type == "cpu" and len(fields) > 1:
        own = kernels.split(1) if kernels.dim() == 4 else [kernels] * len(fields)
        # Copies, so that each has the memory layout of a single image.
        pairs = zip(fields.split(1), own, strict=True)
        return torch.cat([_correlate(field.clone(), kernel.clone()) for field, kernel in pairs])
    return _correlate(fields, kernels)


def _correlate(fields: Tensor, kernels: Tensor) -> Tensor:
    height, width = fields.shape[-2:]
    size = (fast_length(height), fast_length(width))
    spectrum = torch.fft.rfft2(fields, size) * torch.fft.rfft2(kernels, size).conj()
    rows, columns = height - kernels.shape[-2] + 1, width - kernels.shape[-1] + 1
    correlated: Tensor = torch.fft.irfft2(spectrum, size)
    return correlated[..., :rows, :columns]


def extend(fields: Tensor, rows: tuple[int, int], columns: tuple[int, int], border: Border) -> Tensor:
    """Pads fields (..., H, W) by rows and columns before and after.

    The border is `clamp` (a a | a b c d | d d), `mirror` (c b | a b c d | c b) or `symmetric`
    (b a | a b c d | d c); fields may be smaller than the padding.
    """
    height, width = fields.shape[-2:]
    if border == "clamp" and fields.dim() == 4:
        return pad(fields, (*columns, *rows), mode="replicate")
    down = _positions(-rows[0], height + rows[1], height, border, fields.device)
    along = _positions(-columns[0], width + columns[1], width, border, fields.device)
    return fields.index_select(-2, down).index_select(-1, along)


def _positions(start: int, stop: int, length: int, border: Border, device: torch.device) -> Tensor:
    positions = torch.arange(start, stop, device=device)
    if border == "clamp":
        return positions.clamp(0, length - 1)
    # Both reflections are periodic; a period runs forwards, then backwards.
    period = max(1, 2 * length - 2) if border == "mirror" else 2 * length
    positions = positions % period
    back = period - positions if border == "mirror" else period - 1 - positions
    return torch.minimum(positions, back)


@functools.lru_cache(maxsize=64)
def gaussian_weights(sigma: float, radius: int) -> Tensor:
    """Gaussian weights at integer distances, (2 radius + 1,), of sum 1, float64; scipy's to the last bit."""
    distances = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / sigma**2 * distances**2)
    return torch.from_numpy(weights / weights.sum())


def blur(fields: Tensor, sigmas: tuple[float, float], border: Border, truncate: float = 4.0) -> Tensor:
    """Gaussian blur of fields (n, C, H, W), truncated at `truncate` standard deviations, as in scipy.

    The standard deviations are those down and across, in pixels; the border is padded as by `extend`.
    """
    down, across = (int(truncate * sigma + 0.5) for sigma in sigmas)
    kernel = gaussian_weights(sigmas[0], down)[:, None] * gaussian_weights(sigmas[1], across)
    kernel = kernel.to(fields.device, fields.dtype, non_blocking=True)
    return correlate(extend(fields, (down, down), (across, across), border), kernel)


def smooth_widely(fields: Tensor, sigma: float, truncate: float) -> Tensor:
    """Gaussian smoothing of float64 fields (n, C, H, W) with symmetric borders, for kernels of any width.

    One product with a matrix along either axis; on a CPU one by one, as `correlate`.
    """
    down, across = (_smoothing(side, sigma, truncate, fields.device) for side in fields.shape[-2:])
    if fields.device.type == "cpu":
        return torch.stack([down @ field.clone() @ across.T for field in fields.flatten(0, 1)]).view_as(
            fields
        )
    return down @ fields @ across.T


@functools.lru_cache(maxsize=32)
def _smoothing(length: int, sigma: float, truncate: float, device: torch.device) -> Tensor:
    radius = int(truncate * sigma + 0.5)
    taps = _positions(-radius, length + radius, length, "symmetric", torch.device("cpu"))
    sources = taps.unfold(0, 2 * radius + 1, 1)  # (L, 2 radius + 1)
    weights = gaussian_weights(sigma, radius).expand_as(sources)
    matrix = torch.zeros(length, length, dtype=torch.float64).scatter_add_(1, sources, weights.contiguous())
    return matrix.to(device)


def blur_exactly(fields: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of float64 fields (n, C, H, W) with clamped borders, equal to scipy's to the last bit.

    Taps are summed from the outermost to the innermost, each pair first, down and then across, without fused
    operations: one pass over the fields per tap.
    """
    radius = int(4 * sigma + 0.5)
    weights = gaussian_weights(sigma, radius).tolist()
    for axis in (-2, -1):
        length = fields.shape[axis]
        edges = ((radius, radius), (0, 0)) if axis == -2 else ((0, 0), (radius, radius))
        extended = extend(fields, *edges, "clamp")
        total, pair = fields * weights[radius], torch.empty_like(fields)
        for tap in range(radius):
            before, after = (extended.narrow(axis, start, length) for start in (tap, 2 * radius - tap))
            total += torch.add(before, after, out=pair).mul_(weights[tap])
        fields = total
    return fields


@functools.lru_cache(maxsize=256)
def fast_length(length: int) -> int:
    """The smallest even number 2^a 3^b 5^c that is at least `length`: a fast transform size."""
    best: int = 2 ** max(1, math.ceil(math.log2(max(length, 2))))
    for threes in range(12):
        for fives in range(9):
            odd = 3**threes * 5**fives
            twos = max(1, math.ceil(math.log2(max(length / odd, 1))))
            if length <= odd * 2**twos < best:
                best = odd * 2**twos
    return best
