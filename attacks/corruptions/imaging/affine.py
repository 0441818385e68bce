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

    The points are float32 (3, 2) before and (n, 3, 2) after; images whose points coincide stay as they are.
    """
    height, width = levels.shape[-2:]
    rows, columns = (torch.arange(side, device=levels.device) for side in (height, width))
    back = _maps_back(before.double(), after.double())  # (n, 2, 3)
    places = []
    for axis in (0, 1):
        along, down, shift = back[:, axis].unbind(1)
        steps = (along[:, None] * columns * FINE).round().long()[:, None]
        starts = ((down[:, None] * rows + shift[:, None]) * FINE).round().long()[..., None]
        places.append((starts + steps + FINE // PLACES // 2).div(FINE // PLACES, rounding_mode="floor"))
    across, down = places  # (n, H, W), in 32nds
    right, low = ((place % PLACES).float().div_(PLACES)[:, None] for place in (across, down))
    left, top = (place.div(PLACES, rounding_mode="floor") for place in (across, down))
    lines = [_mirrored(top + step, height) * width for step in (0, 1)]
    posts = [_mirrored(left + step, width) for step in (0, 1)]
    flat = levels.flatten(2)  # (n, C, H W)

    def corner(low: int, right: int) -> Tensor:
        index = (lines[low] + posts[right]).flatten(1)[:, None].expand_as(flat)
        return flat.gather(2, index).view_as(levels)

    # Levels times 32nds are exact in float32, and so is every mean of four.
    upper, lower = (torch.lerp(corner(line, 0), corner(line, 1), right) for line in (0, 1))
    return torch.lerp(upper, lower, low)


def _maps_back(before: Tensor, after: Tensor) -> Tensor:
    known = torch.cat([after, torch.ones_like(after[..., :1])], dim=-1)  # (n, 3, 3)
    flat = torch.linalg.det(known).abs() < 1e-9
    stay = torch.eye(3, dtype=after.dtype, device=after.device)
    known = torch.where(flat[:, None, None], stay, known)
    # Not `solve`, which waits for the device to say that no matrix was singular.
    found = torch.linalg.solve_ex(known, before.expand(len(after), 3, 2)).result.transpose(1, 2)
    return torch.where(flat[:, None, None], stay[:2], found)


def _mirrored(places: Tensor, length: int) -> Tensor:
    period = max(1, 2 * length - 2)
    places = places % period
    return torch.minimum(places, period - places)
