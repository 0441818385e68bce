"""The published sizes of SymViT."""

from __future__ import annotations

from torch import nn

from assay.models.attention import symmetric
from assay.models.layers.parameters import ENCODER_FACTS, PATCH_RULES, DropRate, ImageSize, PatchSize
from assay.models.symvit import symvit

__all__ = ["symvit_base", "symvit_tiny"]

TASKS = ("classification",)
OFFERS = ("softmax",)
RULES = PATCH_RULES
FACTS = {
    "symvit_tiny": ENCODER_FACTS | {"width": 192, "depth": 12, "heads": 3},
    "symvit_base": ENCODER_FACTS | {"width": 768, "depth": 12, "heads": 12},
}
PAPER = symmetric.PAPER


def symvit_tiny(
    classes: int,
    channels: int,
    *,
    image_size: ImageSize = 224,
    patch_size: PatchSize = 16,
    drop_path: DropRate = 0.1,
) -> nn.Module:
    """SymViT-tiny: 12 layers of width 192 with 3 heads; 5,272,744 parameters for 1000 classes.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; must divide `image_size`.
        drop_path: rate of stochastic depth in the last layer; it rises linearly from 0 in the first.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: a rule is broken.
    """
    return symvit(
        classes,
        channels,
        image_size=image_size,
        patch_size=patch_size,
        width=192,
        depth=12,
        heads=3,
        drop_path=drop_path,
    )


def symvit_base(
    classes: int,
    channels: int,
    *,
    image_size: ImageSize = 224,
    patch_size: PatchSize = 16,
    drop_path: DropRate = 0.1,
) -> nn.Module:
    """SymViT-base: 12 layers of width 768 with 12 heads; 79,480,552 parameters for 1000 classes.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; must divide `image_size`.
        drop_path: rate of stochastic depth in the last layer; it rises linearly from 0 in the first.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: a rule is broken.
    """
    return symvit(
        classes,
        channels,
        image_size=image_size,
        patch_size=patch_size,
        width=768,
        depth=12,
        heads=12,
        drop_path=drop_path,
    )
