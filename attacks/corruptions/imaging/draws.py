"""Random draws of one example from its own CPU generator, as float32 or 32-bit words.

On the CPU, so that the numbers are the same on every device. Words are cut from 64-bit draws, which takes a
third of the time of `torch.rand`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOWEST = -(2**63)
HALF = 2.0**-32  # from a signed word to [-1/2, 1/2]


def words(generator: torch.Generator, *shape: int) -> Tensor:
    """Uniform signed 32-bit words, int32."""
    count = math.prod(shape)
    pairs = torch.empty((count + 1) // 2, dtype=torch.int64).random_(LOWEST, None, generator=generator)
    return pairs.view(torch.int32)[:count].view(shape)


def symmetric(generator: torch.Generator, *shape: int) -> Tensor:
    """Uniform numbers in [-1, 1], float32."""
    return words(generator, *shape).to(torch.float32).mul_(2 * HALF)


def between(generator: torch.Generator, low: float, high: float) -> Tensor:
    """One uniform number in [low, high), a float64 scalar."""
    return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers, float32."""
    return torch.randn(shape, generator=generator, dtype=torch.float32)
