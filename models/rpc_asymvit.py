"""RPC-AsymViT: the usual vision transformer with RPC-Attention.

    x = [class token; W patch + b] + positions
    x = x + attn(LN(x)),    x = x + W2 gelu(W1 LN(x) + b1) + b2    in each of `depth` layers
    logits = W' LN(x)_class + b'
    attn = the attention `rpc_form` in `rpc_layers`, `softmax` in the others

LN is LayerNorm.
"""

from __future__ import annotations

import functools
from typing import Literal

from assay.models.attention import rpc
from assay.models.attention.rpc import RPCAttention
from assay.models.attention.rpc_asymmetric import AsymmetricRPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers import parameters
from assay.models.layers.attention.lookup import attention_of_layers
from assay.models.layers.checks import one_of
from assay.models.layers.heads import AttentionFactory
from assay.models.layers.presets import VIT_BASE, VIT_COMMON, VIT_TINY, Preset
from assay.models.layers.transformer import VisionTransformer

__all__ = ["rpc_asymvit"]

TASKS = ("classification",)
OFFERS = ("softmax", "pursuit")
FACTS = parameters.ENCODER_FACTS
RULES = (*parameters.PATCH_RULES, *parameters.WIDTH_RULES, parameters.layer_rule("rpc_layers"))
PAPER = rpc.PAPER

RpcForm = Literal["rpc_asymmetric", "rpc"]
FORMS = {"rpc_asymmetric": AsymmetricRPCAttention, "rpc": RPCAttention}


def rpc_asymvit(
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
    rpc_form: RpcForm = "rpc_asymmetric",
    iterations: rpc.Iterations = 4,
    regularization: rpc.Regularization = 4.0,
    threshold: rpc.Threshold = "code",
    mu_width: rpc.MuWidth = "full",
    dual_sign: rpc.DualSign = -1,
    dropout: parameters.Dropout = 0.0,
    attention_dropout: parameters.RpcDropout = 0.0,
    drop_path: parameters.DropPath = 0.1,
) -> parameters.ImageClassifier:
    """Vision transformer with RPC-Attention in the first or other layers, and softmax attention in the rest.

    Both published tiny models have four iterations in the first layer: "4iter/layer1", with queries of their
    own in it (rpc_form = "rpc_asymmetric", the default), and "Sym/Asym", with symmetric RPC in it
    (rpc_form = "rpc").

    Args:
        rpc_form: the attention of those layers, by its name in the catalog.
    """
    one_of("rpc_form", rpc_form, *FORMS)
    robust: AttentionFactory = functools.partial(
        FORMS[rpc_form],
        iterations=iterations,
        regularization=regularization,
        threshold=threshold,
        mu_width=mu_width,
        dual_sign=dual_sign,
        dropout=attention_dropout,
    )
    softmax: AttentionFactory = functools.partial(SoftmaxAttention, dropout=attention_dropout)
    return VisionTransformer(
        attention_of_layers(robust, rpc_layers, depth, softmax),
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


FORM = {
    "rpc_form": 'the attention of those layers: "rpc_asymmetric" (the paper\'s "4iter/layer1") or "rpc" (its'
    ' "Sym/Asym").'
}
# Only the tiny one is in the paper. With rpc_form = "rpc" in the first layer there are 5,680,360 and
# 85,977,064 parameters, because that layer has no queries.
PRESETS = {
    "rpc_asymvit_tiny": Preset(
        rpc_asymvit,
        "RPC-AsymViT-tiny: 12 layers of width 192 with 3 heads; 5,717,416 parameters for 1000 classes.",
        VIT_TINY,
        VIT_COMMON,
        descriptions=FORM,
    ),
    "rpc_asymvit_base": Preset(
        rpc_asymvit,
        "RPC-AsymViT-base: 12 layers of width 768 with 12 heads; 86,567,656 parameters for 1000 classes.",
        VIT_BASE,
        VIT_COMMON,
        descriptions=FORM,
    ),
}
