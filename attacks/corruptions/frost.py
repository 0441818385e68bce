"""Frost: ice crystals on a window, from one of six photographs.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". The photographs are those of a data folder or of the package `imagecorruptions-imaug` (see
`textures.py`); a random crop of a random one is added. In float64: the released code truncates to levels, and
whole levels must be hit exactly.

    x' = min(a x + b ice, 1)
    a, b = SHARES[severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import (
    IMAGENET_C,
    Corruption,
    Draws,
    Severity,
    at,
    cut,
    luminance,
)
from assay.attacks.corruptions.imaging.textures import (
    FOLDER,
    PACKAGE,
    TEXTURES,
    frost_texture,
    photographs_sha256,
)

__all__ = ["frost"]

PAPER = IMAGENET_C
FACTS = {"group": "weather", "milliseconds": 0.44, "files": {"folder": FOLDER, "package": PACKAGE}}
# Shares of the scene and of the ice.
SHARES = ((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))


def frost(*, severity: Severity = 1) -> Corruption:
    """Ice crystals on the window.

    Args:
        severity: 1 to 5; 100, 80, 70, 65 and 60 % of the scene with 40, 60, 70, 70 and 75 % of the ice.

    Raises:
        ValueError: If there is no such severity.
    """
    scene, ice = at(severity, SHARES)
    apply = functools.partial(_apply, scene=scene, ice=ice)
    return Corruption("frost", severity, apply, _draw, files=photographs_sha256)


def _draw(generator: torch.Generator, channels: int, height: int, width: int) -> Draws:
    del channels
    number = int(torch.randint(len(TEXTURES), (), generator=generator))
    rows, columns = frost_texture(number, height, width).shape[-2:]
    top = torch.randint(rows - height, (), generator=generator)
    left = torch.randint(columns - width, (), generator=generator)
    return (torch.stack([torch.tensor(number), top, left]),)


def _apply(levels: Tensor, places: Tensor, *, scene: float, ice: float) -> Tensor:
    channels, height, width = levels.shape[1:]
    parts = []
    for number, top, left in places.tolist():
        part = frost_texture(number, height, width)[:, top : top + height, left : left + width]
        parts.append(part.to(levels.device).double())  # (3, H, W)
    crystals = torch.stack(parts)
    if channels == 1:
        crystals = luminance(crystals)
    return cut(levels.double().mul_(scene).add_(crystals.mul_(ice))).to(levels.dtype)  # (n, C, H, W)
