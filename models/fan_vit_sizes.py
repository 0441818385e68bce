"""The published sizes of FAN-ViT."""

from __future__ import annotations

from typing import Annotated

from torch import nn

from assay.models.fan_vit import PAPER as FAN_PAPER
from assay.models.fan_vit import fan_vit
from assay.models.layers.conv_stem import StemPatchSize
from assay.models.layers.heads import AttentionFactory
from assay.models.layers.parameters import ENCODER_FACTS, PATCH_RULES, DropRate, ImageSize

__all__ = ["fan_vit_base", "fan_vit_small", "fan_vit_tiny"]

TASKS = ("classification",)
OFFERS = ("softmax",)
RULES = PATCH_RULES
FACTS = {
    "fan_vit_tiny": ENCODER_FACTS | {"prefix_tokens": 0, "width": 192, "depth": 12, "heads": 4},
    "fan_vit_small": ENCODER_FACTS | {"prefix_tokens": 0, "width": 384, "depth": 12, "heads": 8},
    "fan_vit_base": ENCODER_FACTS | {"prefix_tokens": 0, "width": 448, "depth": 18, "heads": 8},
}
PAPER = FAN_PAPER


def fan_vit_tiny(
    classes: int,
    channels: int,
    *,
    image_size: ImageSize = 224,
    patch_size: StemPatchSize = 16,
    attention: Annotated[AttentionFactory | str, "attention"] = "softmax",
    drop_path: DropRate = 0.0,
) -> nn.Module:
    """FAN-ViT-tiny: 12 layers of width 192 with 4 heads; 7,319,920 parameters for 1000 classes.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; must divide `image_size`.
        attention: the attention mechanism between tokens with its parameters, or its name.
        drop_path: rate of stochastic depth, the same in every FAN block.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: a rule is broken, or no attention has that name.
    """
    return fan_vit(
        classes,
        channels,
        image_size=image_size,
        patch_size=patch_size,
        width=192,
        depth=12,
        heads=4,
        attention=attention,
        drop_path=drop_path,
    )


def fan_vit_small(
    classes: int,
    channels: int,
    *,
    image_size: ImageSize = 224,
    patch_size: StemPatchSize = 16,
    attention: Annotated[AttentionFactory | str, "attention"] = "softmax",
    drop_path: DropRate = 0.2,
) -> nn.Module:
    """FAN-ViT-small: 12 layers of width 384 with 8 heads; 28,345,336 parameters for 1000 classes.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; must divide `image_size`.
        attention: the attention mechanism between tokens with its parameters, or its name.
        drop_path: rate of stochastic depth, the same in every FAN block.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: a rule is broken, or no attention has that name.
    """
    return fan_vit(
        classes,
        channels,
        image_size=image_size,
        patch_size=patch_size,
        width=384,
        depth=12,
        heads=8,
        attention=attention,
        drop_path=drop_path,
    )


def fan_vit_base(
    classes: int,
    channels: int,
    *,
    image_size: ImageSize = 224,
    patch_size: StemPatchSize = 16,
    attention: Annotated[AttentionFactory | str, "attention"] = "softmax",
    drop_path: DropRate = 0.35,
) -> nn.Module:
    """FAN-ViT-base: 18 layers of width 448 with 8 heads; 54,350,320 parameters for 1000 classes.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; must divide `image_size`.
        attention: the attention mechanism between tokens with its parameters, or its name.
        drop_path: rate of stochastic depth, the same in every FAN block.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: a rule is broken, or no attention has that name.
    """
    return fan_vit(
        classes,
        channels,
        image_size=image_size,
        patch_size=patch_size,
        width=448,
        depth=18,
        heads=8,
        attention=attention,
        drop_path=drop_path,
    )
