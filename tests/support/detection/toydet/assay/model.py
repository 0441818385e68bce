"""A small detector of one stage: convolutions, and a head for each cell of 8 x 8 pixels."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval, MultipleOf
from torch import nn
from toydet.assay.detector import NUMBERS

from assay.models.layers.parameters import ImageSize

__all__ = ["grid_detector"]

TASKS = ("detection",)


def grid_detector(
    classes: int,
    channels: int,
    *,
    image_size: Annotated[ImageSize, MultipleOf(8), Interval(le=256)] = 32,
    width: Annotated[int, Interval(ge=4, le=256)] = 16,
) -> nn.Module:
    """Four convolutions and a head that claims at most a box for each cell of 8 x 8 pixels.

    Args:
        image_size: Height and width of the images in pixels.
        width: Channels between the convolutions.

    Returns:
        Module from normalised images (B, channels, S, S) to outputs (B, (classes + 5) (S / 8)^2).
    """
    del image_size
    layers: list[nn.Module] = []
    for before, stride in ((channels, 2), (width, 2), (width, 2), (width, 1)):
        layers += [nn.Conv2d(before, width, 3, stride, padding=1), nn.GELU()]
    return nn.Sequential(*layers, nn.Conv2d(width, classes + NUMBERS, 1), nn.Flatten())
