"""The vision transformer with any attention.

    x = [class token; W patch + b] + positions
    x = x + attn(LN(x)),    x = x + W2 gelu(W1 LN(x) + b1) + b2    in each of `depth` layers
    logits = W' LN(x)_class + b'
    attn = `attention` in `layers`, softmax attention in the others

LN is LayerNorm.
"""

from __future__ import annotations

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers import parameters
from assay.models.layers.attention.lookup import attention_of_layers
from assay.models.layers.presets import VIT_SMALL, VIT_TINY, Preset
from assay.models.layers.transformer import VisionTransformer

__all__ = ["vit"]

TASKS = ("classification",)
OFFERS = ("softmax", "pursuit")
RULES = (*parameters.PATCH_RULES, *parameters.WIDTH_RULES, parameters.layer_rule("layers"))
FACTS = parameters.ENCODER_FACTS | {"prefix_tokens": 1}
PAPER = "Dosovitskiy et al., An image is worth 16x16 words, ICLR 2021; Touvron et al., DeiT, ICML 2021"


def vit(
    classes: parameters.Classes,
    channels: parameters.Channels,
    *,
    image_size: parameters.ImageSize = 224,
    patch_size: parameters.PatchSize = 16,
    width: parameters.Width = 192,
    depth: parameters.Depth = 12,
    heads: parameters.Heads = 3,
    mlp_ratio: parameters.MlpRatio = 4.0,
    attention: parameters.Attention = "softmax",
    layers: parameters.Layers = "all",
    dropout: parameters.Dropout = 0.0,
    drop_path: parameters.DropPath = 0.1,
) -> parameters.ImageClassifier:
    """Vision transformer with any attention in all or some layers, and softmax attention in the others.

    The defaults are DeiT-tiny's (ViT-tiny, 5,717,416 parameters for 1000 classes).
    """
    return VisionTransformer(
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


COMMON = {"mlp_ratio": 4.0, "dropout": 0.0}
PRESETS = {
    "deit_tiny": Preset(
        vit,
        "DeiT-tiny: 12 layers of width 192 with 3 heads; 5,717,416 parameters for 1000 classes.",
        VIT_TINY,
        COMMON,
    ),
    "deit_tiny_4heads": Preset(
        vit,
        "DeiT-tiny with 4 heads, as in Nguyen et al., ICLR 2023; 5,717,416 parameters for 1000 classes.",
        VIT_TINY | {"heads": 4},
        COMMON,
    ),
    "deit_small": Preset(
        vit,
        "DeiT-small: 12 layers of width 384 with 6 heads; 22,050,664 parameters for 1000 classes.",
        VIT_SMALL,
        COMMON,
    ),
}
