"""Local shuffling of pixels, one after the other in the released code, all at once here, to the same bits.

From the last pixel to the first, each takes over the value that a random neighbour has at that moment (the
released code means an exchange, but its two views of one array make it a copy). So a pixel's value is that
of its neighbour before the round, if the neighbour comes later in that order, and otherwise the neighbour's
new value: pixels form chains, and all chains are followed at once by pointer doubling, in as many steps as
the longest chain has binary digits.

n = images, C = channels, H x W = size, R = rounds; r x c = pixels that take part, those `reach` and more
from the border.
"""

from __future__ import annotations

import torch
from torch import Tensor


def taking_part(length: int, reach: int) -> tuple[int, int]:
    """First and last + 1 of the rows, or columns, that take part; as uneven as in the released code."""
    first = reach + 1
    return first, max(first, length - reach + 1)


def draw_offsets(generator: torch.Generator, rounds: int, height: int, width: int, reach: int) -> Tensor:
    """Offsets of the neighbours, (R, 2, r, c), int8: down and across, uniform in -reach..reach - 1."""
    (top, bottom), (left, right) = taking_part(height, reach), taking_part(width, reach)
    choices = 2 * reach
    size = (rounds, bottom - top, right - left)
    code = torch.randint(choices**2, size, generator=generator, dtype=torch.int32)
    down = torch.arange(-reach, reach, dtype=torch.int8).repeat_interleave(choices)
    across = torch.arange(-reach, reach, dtype=torch.int8).repeat(choices)
    flat = code.flatten()
    return torch.stack(
        [down.index_select(0, flat).view(size), across.index_select(0, flat).view(size)], dim=1
    )


def shuffle(levels: Tensor, offsets: Tensor, reach: int) -> Tensor:
    """Levels (n, C, H, W) after the rounds of exchanges that the offsets (n, R, 2, r, c) tell."""
    count, channels, height, width = levels.shape
    source: Tensor | None = None
    for offset in offsets.unbind(1):
        taken = _sources(offset, height, width, reach)
        source = taken if source is None else source.gather(1, taken)
    if source is None:
        return levels
    index = source[:, None].expand(count, channels, height * width)
    return levels.flatten(2).gather(2, index).view_as(levels)


def _sources(offsets: Tensor, height: int, width: int, reach: int) -> Tensor:
    """Where each pixel's value after one round comes from, (n, H W), int64."""
    count, pixels = len(offsets), height * width
    (top, bottom), (left, right) = taking_part(height, reach), taking_part(width, reach)
    here = torch.arange(pixels, dtype=torch.int32, device=offsets.device).view(height, width)
    inside = here.new_zeros(height, width)
    inside[top:bottom, left:right] = 1
    down, across = offsets.to(torch.int32).unbind(1)
    there = here[top:bottom, left:right] + down * width + across  # (n, r, c)
    # A neighbour that was reached before has its new value: it stands `pixels` further on in the table.
    later = (there > here[top:bottom, left:right]) & inside.flatten().index_select(
        0, there.flatten()
    ).view_as(there).bool()
    table = torch.arange(2 * pixels, dtype=torch.int32, device=offsets.device).repeat(count, 1)
    new = table[:, pixels:].view(count, height, width)
    new -= pixels
    new[:, top:bottom, left:right] = there + later * pixels
    if count and there.numel():
        _follow(table, pixels)
    return table[:, pixels:].long()


def _follow(table: Tensor, pixels: int) -> None:
    """Point every entry of the second half of a table (n, 2 P) at the end of its chain, in the first half."""
    starts = torch.arange(len(table), dtype=torch.int32, device=table.device)[:, None] * table.shape[1]
    while int(table[:, pixels:].max()) >= pixels:
        index = (table[:, pixels:] + starts).flatten()
        table[:, pixels:] = table.flatten().index_select(0, index).view(len(table), pixels)
