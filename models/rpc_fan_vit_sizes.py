"""The published size of RPC-FAN."""

from __future__ import annotations

from torch import nn

from assay.models.attention import rpc
from assay.models.layers.conv_stem import StemPatchSize
from assay.models.layers.parameters import ENCODER_FACTS, PATCH_RULES, DropRate, ImageSize, Layers, layer_rule
from assay.models.rpc_fan_vit import rpc_fan_vit

__all__ = ["rpc_fan_vit_tiny"]

TASKS = ("classification",)
OFFERS = ("softmax",)
FACTS = ENCODER_FACTS | {"width": 192, "depth": 12, "heads": 4}
RULES = (*PATCH_RULES, layer_rule("rpc_layers", "12"))
PAPER = rpc.PAPER


def rpc_fan_vit_tiny(
    classes: int,
    channels: int,
    *,
    image_size: ImageSize = 224,
    patch_size: StemPatchSize = 16,
    rpc_layers: Layers = "first",
    iterations: rpc.Iterations = 4,
    regularization: rpc.Regularization = 4.0,
    threshold: rpc.Threshold = "code",
    mu_width: rpc.MuWidth = "full",
    dual_sign: rpc.DualSign = -1,
    drop_path: DropRate = 0.0,
) -> nn.Module:
    """RPC-FAN-tiny: 12 layers of width 192 with 4 heads; 6,875,248 parameters for 1000 classes.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; must divide `image_size`.
        rpc_layers: the layers with RPC-Attention: all, first, last, or a list of layer numbers from 0.
        iterations: iterations of Principal Attention Pursuit.
        regularization: lambda, the weight of the sparse part.
        threshold: the shrinkage threshold, lambda * mu ("code") or lambda / mu ("paper").
        mu_width: the width in mu, that of the model ("full", as released) or of one head ("head").
        dual_sign: sign of Y / mu in the L step; -1 as published, +1 minimises the stated Lagrangian.
        drop_path: rate of stochastic depth, the same in every FAN block.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: a rule is broken.
    """
    return rpc_fan_vit(
        classes,
        channels,
        image_size=image_size,
        patch_size=patch_size,
        width=192,
        depth=12,
        heads=4,
        rpc_layers=rpc_layers,
        iterations=iterations,
        regularization=regularization,
        threshold=threshold,
        mu_width=mu_width,
        dual_sign=dual_sign,
        drop_path=drop_path,
    )
