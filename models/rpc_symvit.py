"""RPC-SymViT: SymViT with RPC-Attention.

    x = [class token; W patch + b] + positions
    x = x + attn(LN(x)),    x = x + W2 gelu(W1 LN(x) + b1) + b2    in each of `depth` layers
    logits = W' LN(x)_class + b'
    attn = the attention `rpc` in `rpc_layers`, `symmetric` in the others

LN is LayerNorm.
"""

from __future__ import annotations

import functools

from assay.models.attention import rpc
from assay.models.attention.rpc import RPCAttention
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.layers import parameters
from assay.models.layers.attention.lookup import attention_of_layers
from assay.models.layers.heads import AttentionFactory
from assay.models.layers.presets import VIT_BASE, VIT_COMMON, VIT_TINY, Preset
from assay.models.layers.transformer import VisionTransformer

__all__ = ["rpc_symvit"]

TASKS = ("classification",)
OFFERS = ("softmax", "pursuit")
FACTS = parameters.ENCODER_FACTS
RULES = (*parameters.PATCH_RULES, *parameters.WIDTH_RULES, parameters.layer_rule("rpc_layers"))
PAPER = rpc.PAPER


def rpc_symvit(
    classes: parameters.Classes,
    channels: parameters.Channels,
    *,
    image_size: parameters.ImageSize = 224,
    patch_size: parameters.PatchSize = 16,
    width: parameters.Width = 192,
    depth: parameters.Depth = 12,
    heads: parameters.Heads = 3,
    mlp_ratio: parameters.MlpRatio = 4.0,
    rpc_layers: parameters.RpcLayers = "first",
    iterations: rpc.Iterations = 4,
    regularization: rpc.Regularization = 4.0,
    threshold: rpc.Threshold = "code",
    mu_width: rpc.MuWidth = "full",
    dual_sign: rpc.DualSign = -1,
    dropout: parameters.Dropout = 0.0,
    attention_dropout: parameters.RpcDropout = 0.0,
    drop_path: parameters.DropPath = 0.1,
) -> parameters.ImageClassifier:
    """Vision transformer with RPC-Attention in the first or other layers, and symmetric in the rest.

    The defaults are the published tiny model with four iterations in the first layer. The published model
    with RPC in all layers has rpc_layers = "all" and iterations = 2, with regularization 3 in the paper's
    text and 4 in the released evaluation.
    """
    robust: AttentionFactory = functools.partial(
        RPCAttention,
        iterations=iterations,
        regularization=regularization,
        threshold=threshold,
        mu_width=mu_width,
        dual_sign=dual_sign,
        dropout=attention_dropout,
    )
    symmetric: AttentionFactory = functools.partial(SymmetricAttention, dropout=attention_dropout)
    return VisionTransformer(
        attention_of_layers(robust, rpc_layers, depth, symmetric),
        classes=classes,
        channels=channels,
        image_size=image_size,
        patch_size=patch_size,
        width=width,
        heads=heads,
        mlp_ratio=mlp_ratio,
        dropout=dropout,
        drop_path=drop_path,
    )


PRESETS = {
    "rpc_symvit_tiny": Preset(
        rpc_symvit,
        "RPC-SymViT-tiny: 12 layers of width 192 with 3 heads; 5,272,744 parameters for 1000 classes.",
        VIT_TINY,
        VIT_COMMON,
    ),
    "rpc_symvit_base": Preset(
        rpc_symvit,
        "RPC-SymViT-base: 12 layers of width 768 with 12 heads; 79,480,552 parameters for 1000 classes.",
        VIT_BASE,
        VIT_COMMON,
    ),
}
