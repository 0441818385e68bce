"""Posterisation: every value keeps its highest bits, the others are 0, as `PIL.ImageOps.posterize` has it."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import Corruption, Severity, at

__all__ = ["posterize"]

FACTS = {"group": "digital", "milliseconds": 0.2}
BITS = (5, 4, 3, 2, 1)


def posterize(*, severity: Severity = 1) -> Corruption:
    """Few levels in every channel.

    Args:
        severity: 1 to 5; 5, 4, 3, 2 and 1 of the 8 bits are kept.

    Raises:
        ValueError: If there is no such severity.
    """
    return Corruption("posterize", severity, functools.partial(_apply, width=2 ** (8 - at(severity, BITS))))


def _apply(levels: Tensor, *, width: int) -> Tensor:
    return torch.floor(levels / width) * width  # (n, C, H, W); exact, the width is a power of two
