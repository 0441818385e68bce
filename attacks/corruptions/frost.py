"""Frost: ice crystals on a window, from one of five photographs.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). A random crop of a random photograph
(`imaging/textures.py`) is added. The authors draw from the first five, the fork from all six. In float64:
whole levels must be hit exactly before truncation.

    x' = min(a x + b ice, 1)
    a, b = SHARES[constants][severity - 1]
"""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import FORK, Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import (
    IMAGENET_C,
    Corruption,
    Draws,
    Severity,
    cut,
    luminance,
)
from assay.attacks.corruptions.imaging.textures import (
    FOLDER,
    PACKAGE,
    frost_crops,
    frost_texture,
    photographs_sha256,
    textures_of,
)
from assay.attacks.randomness import Source
from assay.attacks.sending import sent

__all__ = ["frost"]

PAPER = IMAGENET_C
FACTS = {"group": "weather", "milliseconds": 0.44, "files": {"folder": FOLDER, "package": PACKAGE}}
# Shares of the scene and of the ice.
SHARES: Released[tuple[float, float]] = {
    "imagenet_c": ((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "cifar_c": ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "tiny_imagenet_c": ((1.0, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
}


def frost(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Ice crystals on the window.

    Args:
        severity: 1 to 5; in ImageNet-C 100, 80, 70, 65 and 60 % of the scene with 40, 60, 70, 70 and 75 %
            of the ice.
    """
    scene, ice = constant(constants, severity, SHARES)
    return Corruption(
        "frost",
        severity,
        functools.partial(_apply, scene=scene, ice=ice, constants=constants),
        functools.partial(_draw, constants=constants),
        files=functools.partial(photographs_sha256, constants),
        variant=FORK if constants == FORK else "",
    )


def _draw(source: Source, channels: int, height: int, width: int, *, constants: Constants) -> Draws:
    del channels
    here = replace(source, device=torch.device("cpu"))
    numbers = here.below((), len(textures_of(constants)), "photograph")
    sizes = [frost_texture(number, height, width, constants).shape[-2:] for number in numbers.tolist()]
    tops = here.below((), [rows - height for rows, _ in sizes], "row")
    lefts = here.below((), [columns - width for _, columns in sizes], "column")
    return (sent(torch.stack([numbers, tops, lefts], dim=1), source.device),)


def _apply(levels: Tensor, places: Tensor, *, scene: float, ice: float, constants: Constants) -> Tensor:
    channels, height, width = levels.shape[1:]
    crystals = frost_crops(places, height, width, constants).double()  # (n, 3, H, W)
    if channels == 1:
        crystals = luminance(crystals)
    return cut(levels.double().mul_(scene).add_(crystals.mul_(ice))).to(levels.dtype)  # (n, C, H, W)
