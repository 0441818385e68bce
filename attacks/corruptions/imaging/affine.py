"""Affine maps of images as by OpenCV 3: places are whole 32nds of a pixel, borders are mirrored.

n = images, C = channels, H x W = size.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Places are computed in 1024ths of a pixel, then rounded to 32nds.
FINE, BITS = 1024, 5
PLACES = 2**BITS


def triangle(height: int, width: int) -> Tensor:
    """Three points around the centre, at a third of the shorter side from it, float32 (3, 2)."""
    down, across, reach = height // 2, width // 2, min(height, width) // 3
    # The first coordinate counts rows here and columns in `warp`: the released code is for square images.
    points = [[down + reach, across + reach], [down + reach, across - reach], [down - reach, across - reach]]
    return torch.tensor(points, dtype=torch.float32)


def warp(levels: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Moves images (n, C, H, W), float32, so that three points (column, row) move, bilinear.

    The points are float32 (3, 2) before, on the CPU, and (n, 3, 2) after; images whose points coincide stay
    as they are.
    """
    height, width = levels.shape[-2:]
    rows, columns = torch.arange(height), torch.arange(width)
    back = _maps_back(before.double(), after.double())  # (n, 2, 3)
    places = []
    for axis in (0, 1):
        along, down, shift = back[:, axis].unbind(1)
        steps = (along[:, None] * columns * FINE).round().long()[:, None]
        starts = ((down[:, None] * rows + shift[:, None]) * FINE).round().long()[..., None]
        places.append((starts + steps + FINE // PLACES // 2).div(FINE // PLACES, rounding_mode="floor"))
    across, down = (place.to(levels.device) for place in places)  # (n, H, W), in 32nds
    right, low = ((place % PLACES).float().div_(PLACES)[:, None] for place in (across, down))
    left, top = (place.div(PLACES, rounding_mode="floor") for place in (across, down))
    corner = _Gather(levels)
    upper = corner(top, left) * (1 - right) + corner(top, left + 1) * right
    lower = corner(top + 1, left) * (1 - right) + corner(top + 1, left + 1) * right
    mapped: Tensor = upper * (1 - low) + lower * low
    return mapped


def _maps_back(before: Tensor, after: Tensor) -> Tensor:
    """For each image the map from `after` to `before`, float64 (n, 2, 3)."""
    ones = torch.ones(*after.shape[:-1], 1, dtype=after.dtype)
    known = torch.cat([after, ones], dim=-1)  # (n, 3, 3)
    flat = torch.linalg.det(known).abs() < 1e-9
    stay = torch.cat([torch.eye(2, dtype=after.dtype), torch.zeros(2, 1, dtype=after.dtype)], dim=1)
    known = torch.where(flat[:, None, None], torch.eye(3, dtype=after.dtype), known)
    found = torch.linalg.solve(known, before.expand(len(after), 3, 2)).transpose(1, 2)
    return torch.where(flat[:, None, None], stay, found)


class _Gather:
    """Pixels (n, C, H, W) at places (n, H, W) down and across; places outside are mirrored."""

    def __init__(self, levels: Tensor) -> None:
        self._levels = levels
        self._height, self._width = levels.shape[-2:]

    def __call__(self, down: Tensor, across: Tensor) -> Tensor:
        index = _mirrored(down, self._height) * self._width + _mirrored(across, self._width)
        flat = self._levels.flatten(2)  # (n, C, H W)
        return flat.gather(2, index.flatten(1)[:, None].expand(-1, flat.shape[1], -1)).view_as(self._levels)


def _mirrored(places: Tensor, length: int) -> Tensor:
    period = max(1, 2 * length - 2)
    places = places % period
    return torch.minimum(places, period - places)
