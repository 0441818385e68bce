"""Brightness: V of hue, saturation and value is raised; hue and saturation stay.

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). With V the largest channel, a colour of the same hue
and saturation is the old one times V'/V. In float64, because V + 0.2 and V + 0.4 are whole levels, which are
then truncated.

    x' = x V' / V,    V = the largest channel of x,    V' = min(V + b, 1);    x' = V' where V = 0
    b = ADDED[constants][severity - 1]
"""

from __future__ import annotations

import functools

from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Severity, cut, divided

__all__ = ["brightness"]

PAPER = IMAGENET_C
FACTS = {"group": "weather", "milliseconds": 0.49}
ADDED: Released[float] = {
    "imagenet_c": (0.1, 0.2, 0.3, 0.4, 0.5),
    "cifar_c": (0.05, 0.1, 0.15, 0.2, 0.3),
    "tiny_imagenet_c": (0.1, 0.2, 0.3, 0.4, 0.5),
}


def brightness(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Bright daylight.

    Args:
        severity: 1 to 5; in ImageNet-C 0.1, 0.2, 0.3, 0.4 and 0.5 of the range are added.
    """
    return Corruption(
        "brightness", severity, functools.partial(_apply, added=constant(constants, severity, ADDED))
    )


def _apply(levels: Tensor, *, added: float) -> Tensor:
    value = levels.amax(1, keepdim=True).double()  # (n, 1, H, W)
    raised = divided(value, TOP).add_(added).clamp_(max=1).mul_(TOP)
    scale = raised / value.clamp(min=1)
    # Not levels * scale: the largest channel must become V' to the last bit.
    return cut(raised - (value - levels) * scale).to(levels.dtype)  # (n, C, H, W)
