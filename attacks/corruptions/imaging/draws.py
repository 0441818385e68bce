"""Random draws of corruptions, a row for each example."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from assay.attacks.randomness import Source
from assay.attacks.sending import sent


def symmetric(source: Source, *shape: int, purpose: str = "start") -> Tensor:
    """Uniform numbers in [-1, 1], float32 (n, *shape)."""
    return source.words(shape, purpose).float().mul_(2.0**-31)


def between(source: Source, low: float, high: float) -> Tensor:
    """One uniform number in (low, high) for each example, float64 (n,)."""
    drawn = replace(source, device=torch.device("cpu")).uniform((), "between").double()
    return sent(low + (high - low) * drawn, source.device)
