"""RPC-AsymViT in the sizes of ViT-tiny and ViT-base; the paper has the tiny one."""

from __future__ import annotations

from torch import nn

from assay.models.attention import rpc
from assay.models.layers.parameters import (
    ENCODER_FACTS,
    PATCH_RULES,
    DropRate,
    ImageSize,
    Layers,
    PatchSize,
    layer_rule,
)
from assay.models.rpc_asymvit import RpcForm, rpc_asymvit

__all__ = ["rpc_asymvit_base", "rpc_asymvit_tiny"]

TASKS = ("classification",)
OFFERS = ("softmax",)
RULES = (*PATCH_RULES, layer_rule("rpc_layers", "12"))
FACTS = {
    "rpc_asymvit_tiny": ENCODER_FACTS | {"width": 192, "depth": 12, "heads": 3},
    "rpc_asymvit_base": ENCODER_FACTS | {"width": 768, "depth": 12, "heads": 12},
}
PAPER = rpc.PAPER


def rpc_asymvit_tiny(
    classes: int,
    channels: int,
    *,
    image_size: ImageSize = 224,
    patch_size: PatchSize = 16,
    rpc_layers: Layers = "first",
    rpc_form: RpcForm = "rpc_asymmetric",
    iterations: rpc.Iterations = 4,
    regularization: rpc.Regularization = 4.0,
    threshold: rpc.Threshold = "code",
    mu_width: rpc.MuWidth = "full",
    dual_sign: rpc.DualSign = -1,
    drop_path: DropRate = 0.1,
) -> nn.Module:
    """RPC-AsymViT-tiny: 12 layers of width 192 with 3 heads; 5,717,416 parameters for 1000 classes.

    With rpc_form = "rpc" in the first layer there are 5,680,360, because that layer has no queries.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; must divide `image_size`.
        rpc_layers: the layers with RPC-Attention: all, first, last, or a list of layer numbers from 0.
        rpc_form: the attention of those layers: "rpc_asymmetric" (the paper's "4iter/layer1") or "rpc"
            (its "Sym/Asym").
        iterations: iterations of Principal Attention Pursuit.
        regularization: lambda, the weight of the sparse part.
        threshold: the shrinkage threshold, lambda * mu ("code") or lambda / mu ("paper").
        mu_width: the width in mu, that of the model ("full", as released) or of one head ("head").
        dual_sign: sign of Y / mu in the L step; -1 as published, +1 minimises the stated Lagrangian.
        drop_path: rate of stochastic depth in the last layer; it rises linearly from 0 in the first.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: a rule is broken, or `rpc_form` is neither of the two.
    """
    return rpc_asymvit(
        classes,
        channels,
        image_size=image_size,
        patch_size=patch_size,
        width=192,
        depth=12,
        heads=3,
        rpc_layers=rpc_layers,
        rpc_form=rpc_form,
        iterations=iterations,
        regularization=regularization,
        threshold=threshold,
        mu_width=mu_width,
        dual_sign=dual_sign,
        drop_path=drop_path,
    )


def rpc_asymvit_base(
    classes: int,
    channels: int,
    *,
    image_size: ImageSize = 224,
    patch_size: PatchSize = 16,
    rpc_layers: Layers = "first",
    rpc_form: RpcForm = "rpc_asymmetric",
    iterations: rpc.Iterations = 4,
    regularization: rpc.Regularization = 4.0,
    threshold: rpc.Threshold = "code",
    mu_width: rpc.MuWidth = "full",
    dual_sign: rpc.DualSign = -1,
    drop_path: DropRate = 0.1,
) -> nn.Module:
    """RPC-AsymViT-base: 12 layers of width 768 with 12 heads; 86,567,656 parameters for 1000 classes.

    With rpc_form = "rpc" in the first layer there are 85,977,064, because that layer has no queries.

    Args:
        classes: number of classes.
        channels: channels of the images.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; must divide `image_size`.
        rpc_layers: the layers with RPC-Attention: all, first, last, or a list of layer numbers from 0.
        rpc_form: the attention of those layers: "rpc_asymmetric" (the paper's "4iter/layer1") or "rpc"
            (its "Sym/Asym").
        iterations: iterations of Principal Attention Pursuit.
        regularization: lambda, the weight of the sparse part.
        threshold: the shrinkage threshold, lambda * mu ("code") or lambda / mu ("paper").
        mu_width: the width in mu, that of the model ("full", as released) or of one head ("head").
        dual_sign: sign of Y / mu in the L step; -1 as published, +1 minimises the stated Lagrangian.
        drop_path: rate of stochastic depth in the last layer; it rises linearly from 0 in the first.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: a rule is broken, or `rpc_form` is neither of the two.
    """
    return rpc_asymvit(
        classes,
        channels,
        image_size=image_size,
        patch_size=patch_size,
        width=768,
        depth=12,
        heads=12,
        rpc_layers=rpc_layers,
        rpc_form=rpc_form,
        iterations=iterations,
        regularization=regularization,
        threshold=threshold,
        mu_width=mu_width,
        dual_sign=dual_sign,
        drop_path=drop_path,
    )
