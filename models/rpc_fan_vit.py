"""RPC-FAN: the fully attentional network with RPC-Attention.

    x = stem(image) + W waves(row, column) + b                  stem: convolutions of stride 2
    x = x + g1 attn(LN(x)),    x = x + g2 C(LN(x))              in each of `depth` blocks, on the patches
    C(x) = temperature_h sigmoid(sum_n q_n k_n) v               a gate for each channel, h its head
    q = softmax over tokens of W_q x + b_q,    v = LN(MLP(x))
    k = softmax over tokens of x, then the mean over the channels of the head
    x = [class token; x], then twice, with z = LN(x):
    x = LN(x + g3 [class attention(z); z_patches]),    x = x + [g4 mlp(x_class); x_patches]
    logits = W' LN(x)_class + b'
    attn = the attention `rpc` in `rpc_layers`, `symmetric` in the others

LN is LayerNorm.
"""

from __future__ import annotations

import functools

from assay.models.attention import rpc
from assay.models.attention.rpc import RPCAttention
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.layers import fan, parameters
from assay.models.layers.attention.lookup import attention_of_layers
from assay.models.layers.conv_stem import STEM_RULES, StemPatchSize
from assay.models.layers.fan import FullyAttentionalNetwork
from assay.models.layers.heads import AttentionFactory
from assay.models.layers.presets import VIT_COMMON, Preset

__all__ = ["rpc_fan_vit"]

TASKS = ("classification",)
OFFERS = ("softmax", "pursuit")
FACTS = parameters.ENCODER_FACTS
RULES = (
    *parameters.PATCH_RULES,
    *STEM_RULES,
    *parameters.WIDTH_RULES,
    parameters.layer_rule("rpc_layers"),
)
PAPER = rpc.PAPER


def rpc_fan_vit(
    classes: parameters.Classes,
    channels: parameters.Channels,
    *,
    image_size: parameters.ImageSize = 224,
    patch_size: StemPatchSize = 16,
    width: fan.FanWidth = 192,
    depth: fan.FanDepth = 12,
    heads: fan.FanHeads = 4,
    mlp_ratio: parameters.MlpRatio = 4.0,
    rpc_layers: parameters.RpcLayers = "first",
    iterations: rpc.Iterations = 4,
    regularization: rpc.Regularization = 4.0,
    threshold: rpc.Threshold = "code",
    mu_width: rpc.MuWidth = "full",
    dual_sign: rpc.DualSign = -1,
    dropout: parameters.Dropout = 0.0,
    attention_dropout: parameters.RpcDropout = 0.0,
    drop_path: fan.FanDropPath = 0.0,
) -> parameters.ImageClassifier:
    """Fully attentional network with RPC-Attention in the first or other layers, and symmetric in the rest.

    The defaults are the published tiny model's, with four iterations in the first layer.
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
    return FullyAttentionalNetwork(
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
    "rpc_fan_vit_tiny": Preset(
        rpc_fan_vit,
        "RPC-FAN-tiny: 12 layers of width 192 with 4 heads; 6,875,248 parameters for 1000 classes.",
        {"width": 192, "depth": 12, "heads": 4},
        VIT_COMMON,
    )
}
