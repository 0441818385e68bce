"""The shortest way from a point of a box to a hyperplane, without leaving the box.

Croce and Hein 2020 (`fab.py`), equation 6:

    min |d|   such that   <w, x + d> = b   and   0 <= x + d <= 1

Let c = <w, x> - b, and let every coordinate move against sign(c) w. A coordinate with room m before the box
moves by min(level, m) in Linf, by min(level |w|, m) in L2, where the level solves

    sum a min(level, r) = |c|      with  a = |w|, r = m  in Linf  and  a = w^2, r = m / |w|  in L2.

The sum is concave and piecewise linear in the level, so Newton's method from 0 ends on the solution's piece
after a few steps (2 or 3 on images), without the sort of the reference code. In L1 the coordinates of the
largest |w| move first, each by all of its room, until the sum of |w| m is |c|: that order needs a sort. Where
even the corner of the box doesn't reach the hyperplane, the way ends there. As in the reference code,
coordinates with |w| < 1e-8 don't move in L2.

B batch, D dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.attacks.threat import BallNorm, Box

MIN_WEIGHT = 1e-8
BLOCK = 128
# Newton's steps between two looks at whether all rows have ended: one waits for a GPU.
STEPS_BETWEEN_LOOKS = 4


def way_to_hyperplane(
    points: Tensor, weights: Tensor, offset: Tensor, norm: BallNorm, box: Box | None
) -> Tensor:
    """The shortest perturbations, in `norm`, that bring points in the box onto their hyperplanes.

    Points and normals w, the weights, are (B, D); the offset is c, (B,). The result, (B, D), is zero where a
    hyperplane has no normal.
    """
    if norm == "L2":
        weights = weights.where(weights.abs() >= MIN_WEIGHT, 0.0)
    away = torch.where(offset >= 0, -1.0, 1.0)[:, None].to(weights) * weights.sign()
    size = weights.abs()
    if norm == "L1":
        room = torch.full_like(points, torch.inf)
        if box is not None:
            room = torch.where(away > 0, box[1] - points, points - box[0])
        return away * _steepest_first(size, room, offset.abs())
    pace = torch.ones_like(size) if norm == "Linf" else size
    if box is None:
        level = offset.abs() / _positive((size * pace).sum(1))
        return away * pace * level[:, None]
    room = torch.where(away > 0, box[1] - points, points - box[0])
    # A coordinate that cannot move counts nowhere.
    limits = room if norm == "Linf" else (room / _positive(size)).where(size > 0, 0.0)
    level = _level(size * pace, limits, offset.abs())
    return away * torch.minimum(pace * level[:, None], room)


def _level(slopes: Tensor, limits: Tensor, wanted: Tensor) -> Tensor:
    level = torch.zeros_like(wanted)
    before = torch.full_like(wanted, -1.0)
    # Not infinity: coordinates that don't move have pace 0.
    farthest = torch.finfo(level.dtype).max
    for number in range(1, slopes.shape[1] + 2):  # each step but the last passes one of the limits
        # A row with the slope of its last step is on its piece and rests.
        slope = (slopes * (limits > level[:, None])).sum(1)
        moving = slope != before
        if (number % STEPS_BETWEEN_LOOKS == 0 or level.device.type == "cpu") and not moving.any():
            break
        missing = wanted - (slopes * torch.minimum(level[:, None], limits)).sum(1)
        risen = (level + missing / _positive(slope)).clamp(min=0.0)
        # All limits are below the level, and the sum is too small.
        risen = torch.where(slope > 0, risen, torch.where(missing > 0, farthest, level))
        level = torch.where(moving, risen.clamp(max=farthest), level)
        before = slope
    return level


def _steepest_first(size: Tensor, room: Tensor, wanted: Tensor) -> Tensor:
    size, order = size.sort(dim=1, descending=True, stable=True)
    gains = torch.where(size > 0, size * room.gather(1, order), 0.0)
    steeper = prefix_sums(gains.clamp(max=wanted[:, None])).roll(1, 1)
    steeper[:, :1] = 0.0
    left = (wanted[:, None] - steeper).clamp(min=0.0)
    moved = torch.where(size > 0, torch.minimum(left / _positive(size), room.gather(1, order)), 0.0)
    return torch.zeros_like(moved).scatter(1, order, moved)


def prefix_sums(values: Tensor, block: int | None = None) -> Tensor:
    """The running sums of each row, (B, D), in an order of additions that repeats on every run.

    On a GPU the library's `cumsum` does not. There the sums are made in blocks, of 128 by default: a matrix
    product within them, and what the blocks before come to.
    """
    if block is None and values.device.type == "cpu":
        return values.cumsum(1)
    length, count = block or BLOCK, values.shape[1]
    blocks = nn.functional.pad(values, (0, -count % length)).unflatten(1, (-1, length))
    ones = torch.ones(length, length, dtype=values.dtype, device=values.device).triu()
    inside = blocks @ ones
    if blocks.shape[1] > 1:
        before = prefix_sums(inside[:, :-1, -1], length)
        inside[:, 1:] += before[:, :, None]
    sums: Tensor = inside.flatten(1)[:, :count]
    return sums


def _positive(values: Tensor) -> Tensor:
    return values.clamp(min=torch.finfo(values.dtype).tiny)
