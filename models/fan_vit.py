"""FAN-ViT: the fully attentional network with any attention of the catalog for its tokens.

    x = stem(image) + W waves(row, column) + b                  stem: convolutions of stride 2
    x = x + g1 attn(LN(x)),    x = x + g2 C(LN(x))              in each of `depth` blocks, on the patches
    C(x) = temperature_h sigmoid(sum_n q_n k_n) v               a gate for each channel, h its head
    q = softmax over tokens of W_q x + b_q,    v = LN(MLP(x))
    k = softmax over tokens of x, then the mean over the channels of the head
    x = [class token; x], then twice, with z = LN(x):
    x = LN(x + g3 [class attention(z); z_patches]),    x = x + [g4 mlp(x_class); x_patches]
    logits = W' LN(x)_class + b'
    attn = `attention` in `layers`, softmax attention in the others

LN is LayerNorm.
"""

from __future__ import annotations

from typing import Annotated

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers import fan, parameters
from assay.models.layers.attention.lookup import attention_of_layers
from assay.models.layers.conv_stem import STEM_RULES, StemPatchSize
from assay.models.layers.fan import FullyAttentionalNetwork
from assay.models.layers.heads import AttentionFactory
from assay.models.layers.presets import Preset

__all__ = ["fan_vit"]

TASKS = ("classification",)
OFFERS = ("softmax", "pursuit")
RULES = (
    *parameters.PATCH_RULES,
    *STEM_RULES,
    *parameters.WIDTH_RULES,
    parameters.layer_rule("layers"),
)
FACTS = parameters.ENCODER_FACTS | {"prefix_tokens": 0}  # the class token joins after the FAN blocks
PAPER = "Zhou et al., Understanding the robustness in vision transformers, ICML 2022"


def fan_vit(
    classes: parameters.Classes,
    channels: parameters.Channels,
    *,
    image_size: parameters.ImageSize = 224,
    patch_size: StemPatchSize = 16,
    width: fan.FanWidth = 192,
    depth: fan.FanDepth = 12,
    heads: fan.FanHeads = 4,
    mlp_ratio: parameters.MlpRatio = 4.0,
    attention: Annotated[AttentionFactory | str, "attention"] = "softmax",
    layers: parameters.Layers = "all",
    dropout: parameters.Dropout = 0.0,
    drop_path: fan.FanDropPath = 0.0,
) -> parameters.ImageClassifier:
    """Fully attentional network, at any size, with any attention in all or some layers and softmax elsewhere.

    The defaults are the published tiny model's.

    Args:
        attention: the attention mechanism between tokens with its parameters, or its name.
    """
    return FullyAttentionalNetwork(
        attention_of_layers(attention, layers, depth, SoftmaxAttention),
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


COMMON = {"mlp_ratio": 4.0, "layers": "all", "dropout": 0.0}
PRESETS = {
    "fan_vit_tiny": Preset(
        fan_vit,
        "FAN-ViT-tiny: 12 layers of width 192 with 4 heads; 7,319,920 parameters for 1000 classes.",
        {"width": 192, "depth": 12, "heads": 4},
        COMMON,
    ),
    "fan_vit_small": Preset(
        fan_vit,
        "FAN-ViT-small: 12 layers of width 384 with 8 heads; 28,345,336 parameters for 1000 classes.",
        {"width": 384, "depth": 12, "heads": 8},
        COMMON,
        defaults={"drop_path": 0.2},
    ),
    "fan_vit_base": Preset(
        fan_vit,
        "FAN-ViT-base: 18 layers of width 448 with 8 heads; 54,350,320 parameters for 1000 classes.",
        {"width": 448, "depth": 18, "heads": 8},
        COMMON,
        defaults={"drop_path": 0.35},
    ),
}
