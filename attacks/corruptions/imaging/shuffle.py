"""Local shuffling of pixels, in parallel but bit-identical to the sequential released code.

From the last pixel to the first, each takes the value that a random neighbour has at that moment (the
released code means an exchange, but its two views of an array make it a copy): the neighbour's value before
the round if the neighbour comes later in that order, else its new value. Pixels form chains, all followed at
once by pointer doubling, in as many steps as the longest chain has binary digits; beside a CPU, where to look
is to wait, as the longest that could be has.

n = images, C = channels, H x W = size, R = rounds; r x c = pixels that take part, those `reach` and more
from the border.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.randomness import Source


def taking_part(length: int, reach: int) -> tuple[int, int]:
    """First and last + 1 of the rows, or columns, that take part; asymmetric, as in the released code."""
    first = reach + 1
    return first, max(first, length - reach + 1)


def draw_offsets(source: Source, rounds: int, height: int, width: int, reach: int) -> Tensor:
    """Offsets of the neighbours, (n, R, 2, r, c), int8: down and across, uniform in -reach..reach - 1."""
    (top, bottom), (left, right) = taking_part(height, reach), taking_part(width, reach)
    choices = 2 * reach
    words = source.words((rounds, bottom - top, right - left))
    # As `below`, from 23 bits: products stay within 32 bits, and probabilities within 2^-23.
    code = words.bitwise_right_shift_(9).bitwise_and_(2**23 - 1).mul_(choices**2).bitwise_right_shift_(23)
    steps = torch.arange(-reach, reach, dtype=torch.int8, device=code.device)
    flat, tables = code.flatten(), (steps.repeat_interleave(choices), steps.repeat(choices))
    return torch.stack([table.index_select(0, flat).view_as(code) for table in tables], dim=2)


def shuffle(levels: Tensor, offsets: Tensor, reach: int) -> Tensor:
    """Applies the rounds of swaps given by the offsets (n, R, 2, r, c) to levels (n, C, H, W)."""
    _, _, height, width = levels.shape
    source: Tensor | None = None
    for offset in offsets.unbind(1):
        taken = _sources(offset, height, width, reach)
        source = taken if source is None else _each_at(source, taken)
    if source is None or not len(levels):
        return levels
    if levels.device.type != "cpu":
        index = source.long()[:, None].expand(-1, levels.shape[1], -1)
        return levels.flatten(2).gather(2, index).view_as(levels)
    planes = zip(levels.flatten(2), source, strict=True)
    return torch.stack([image.index_select(1, index) for image, index in planes]).view_as(levels)


def _sources(offsets: Tensor, height: int, width: int, reach: int) -> Tensor:
    """Source of each pixel's value after one round, (n, H W), int32."""
    count, pixels = len(offsets), height * width
    (top, bottom), (left, right) = taking_part(height, reach), taking_part(width, reach)
    here = torch.arange(pixels, dtype=torch.int32, device=offsets.device).view(height, width)
    pointers = here.repeat(count, 1, 1)  # (n, H, W)
    if not offsets.numel():
        return pointers.flatten(1)
    # Offset that marks a position as "new": it has its new value before the pixel that reads it.
    on_cpu = pointers.device.type == "cpu"
    new = torch.zeros_like(here)
    new[top:bottom, left:right] = pixels if on_cpu else count * pixels
    down, across = offsets.to(torch.int32).unbind(1)
    own = here[top:bottom, left:right]
    there = own + down * width + across  # (n, r, c)
    marks = new.flatten().index_select(0, there.flatten()).view_as(there)
    pointers[:, top:bottom, left:right] = there + marks * (there > own)
    return _ends(pointers.flatten(1), pixels) if on_cpu else ends(pointers.flatten(1), own.numel())


def ends(pointers: Tensor, longest: int) -> Tensor:
    """As `_ends`, of chains of at most so many pixels. Pointers to new values have n P added."""
    count, pixels = pointers.shape
    first = torch.arange(count, dtype=torch.int32, device=pointers.device)[:, None] * pixels
    # Old values of all pixels, which point to themselves, then new values, which alone change.
    old = torch.arange(pointers.numel(), dtype=torch.int32, device=pointers.device)
    nodes = torch.cat([old, (pointers + first).flatten()])
    others = nodes.clone()
    for _ in range((longest - 1).bit_length()):
        torch.index_select(nodes, 0, nodes[len(old) :], out=others[len(old) :])
        nodes, others = others, nodes
    return nodes[len(old) :].view_as(pointers) - first


def _ends(pointers: Tensor, pixels: int) -> Tensor:
    """Follows every chain of pointers (n, P) to its end: a pointer marked as new becomes its pixel's."""
    flat = pointers.flatten()
    marked = (flat >= pixels).nonzero().flatten()
    while len(marked):
        image = marked - marked % pixels if len(pointers) > 1 else 0
        values = flat.index_select(0, flat.index_select(0, marked) - pixels + image)
        flat.index_copy_(0, marked, values)
        marked = marked[values >= pixels]
    return flat.view_as(pointers)


def _each_at(values: Tensor, index: Tensor) -> Tensor:
    """values[i, index[i, j]], for int32 tensors (n, P)."""
    starts = torch.arange(len(values), dtype=torch.int32, device=values.device)[:, None] * values.shape[1]
    return values.flatten().index_select(0, (index + starts).flatten()).view_as(index)
