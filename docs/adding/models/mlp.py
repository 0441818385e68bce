"""A perceptron with one hidden layer, for small images."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from torch import nn

from assay.models.layers.parameters import ImageSize, Width
from assay.models.layers.presets import Preset

__all__ = ["mlp"]

TASKS = ("classification",)


def mlp(
    classes: int,
    channels: int,
    *,
    image_size: Annotated[ImageSize, Interval(le=64)] = 16,
    width: Width = 64,
) -> nn.Module:
    """Perceptron with one hidden layer.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        width: units of the hidden layer.

    Returns:
        Module from normalised images (B, channels, S, S) to logits (B, classes).
    """
    pixels = channels * image_size**2
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.GELU(), nn.Linear(width, classes))


PRESETS = {"mlp_wide": Preset(mlp, "Perceptron with 256 hidden units.", {"width": 256})}
