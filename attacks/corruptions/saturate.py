"""Saturate: S of hue, saturation and value is scaled and shifted; hue and value stay.

Hendrycks and Dietterich 2019, appendix B: one of the four extra corruptions. Greys have no hue; the released
code treats them as red, with S' = shift. Single-channel images have no saturation and stay unchanged.

    x' = V - (V - x) S' / S,    S' = min(a S + b, 1),    V = the largest channel, S = (V - smallest) / V
    a, b = CHANGES[constants][severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Severity, cut, divided

__all__ = ["saturate"]

PAPER = IMAGENET_C
FACTS = {"group": "extra", "milliseconds": 1.01}
# Factor and shift of the saturation.
CHANGES: Released[tuple[float, float]] = {
    "imagenet_c": ((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
    "cifar_c": ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    "tiny_imagenet_c": ((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (30.0, 0.2)),
}


def saturate(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Pale colours, and then garish ones.

    Args:
        severity: 1 to 5; in ImageNet-C saturations times 0.3 and 0.1, doubled, times 5 and 20 with 0.1 and
            0.2 added.
    """
    factor, shift = constant(constants, severity, CHANGES)
    return Corruption("saturate", severity, functools.partial(_apply, factor=factor, shift=shift))


def _apply(levels: Tensor, *, factor: float, shift: float) -> Tensor:
    if levels.shape[1] == 1:
        return levels
    colours = divided(levels.double(), TOP)
    value = colours.amax(1, keepdim=True)  # (n, 1, H, W)
    spread = value - colours.amin(1, keepdim=True)
    saturation = spread / value.clamp(min=1 / TOP)
    wanted = (saturation * factor + shift).clamp(0, 1)
    below = (value - colours) * (wanted / saturation.clamp(min=1 / TOP))
    red = torch.arange(3, dtype=torch.float64, device=levels.device).clamp_(max=1)[:, None, None]  # 0, 1, 1
    below = torch.where(spread == 0, value * wanted * red, below)
    return cut((value - below).mul_(TOP)).to(levels.dtype)  # (n, C, H, W)
