"""Fog: a random landscape of brightness is added, and the sum scaled back.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". With f the landscape of `plasma.py` and m the image's largest value: (x + c f) m / (m + c).

    x' = (x + c f) m / (m + c),    f = a random landscape,    m = the largest value of x
    c, decay of f's details = FOGS[constants][severity - 1]
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Draws, Severity, cut
from assay.attacks.corruptions.imaging.draws import symmetric
from assay.attacks.corruptions.imaging.plasma import draws_needed, plasma

__all__ = ["fog"]

PAPER = IMAGENET_C
FACTS = {"group": "weather", "milliseconds": 1.14}
# Thickness c, and how fast the landscape's details fade.
FOGS: Mapping[Constants, Sequence[tuple[float, float]]] = {
    "imagenet_c": ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    "cifar_c": ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    "tiny_imagenet_c": ((0.4, 3.0), (0.7, 3.0), (1.0, 2.5), (1.5, 2.0), (2.0, 1.75)),
}


def fog(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Uneven fog.

    Args:
        severity: 1 to 5; in ImageNet-C thickness 1.5, 2, 2.5, 2.5 and 3, the last three with more detail.
        constants: Which released script's constants.
    """
    thickness, decay = constant(constants, severity, FOGS)
    return Corruption("fog", severity, functools.partial(_apply, thickness=thickness, decay=decay), _draw)


def side_of(height: int, width: int) -> int:
    """Side of the landscape that covers an image: a power of two."""
    return int(2 ** (max(height, width) - 1).bit_length())


def _draw(generator: torch.Generator, channels: int, height: int, width: int) -> Draws:
    del channels
    return (symmetric(generator, draws_needed(side_of(height, width))),)


def _apply(levels: Tensor, chance: Tensor, *, thickness: float, decay: float) -> Tensor:
    height, width = levels.shape[-2:]
    land = plasma(chance, side_of(height, width), decay)[:, None, :height, :width]
    top = levels.amax((1, 2, 3), keepdim=True)
    return cut((levels + TOP * thickness * land) * (top / (top + TOP * thickness)))  # (n, C, H, W)
