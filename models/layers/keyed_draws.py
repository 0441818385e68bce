"""Random numbers that belong to places: a hash of a layer's key and of coordinates, without a generator.

The number at a place is the same in every batch and beside any padding. The mixing function is the finaliser
of MurmurHash3 (Appleby 2011), on 32 bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

BITS = 0xFFFFFFFF
GOLDEN = 0x9E3779B1  # 2^32 divided by the golden ratio


def draw_key() -> Tensor:
    """A key for one layer, int64 of shape (), drawn by torch's generator on the CPU as weights are."""
    return torch.randint(2**31 - 1, (), device="cpu")


def keyed_uniform(key: Tensor, *coordinates: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), float64, one for each tuple of coordinates, of their common shape.

    The key is of `draw_key`; coordinates are int64 tensors that broadcast together, in [0, 2^31).
    """
    state = key
    for coordinate in coordinates:
        state = _mix((state * GOLDEN + coordinate + 1) & BITS)
    return state.double() / 2**32


def _mix(state: Tensor) -> Tensor:
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & BITS  # products overflow; their low 32 bits are right
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & BITS
    return state ^ (state >> 16)
