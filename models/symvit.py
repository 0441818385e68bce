"""SymViT: the vision transformer with keys = queries.

    x = [class token; W patch + b] + positions
    x = x + attn(LN(x)),    x = x + W2 gelu(W1 LN(x) + b1) + b2    in each of `depth` layers
    logits = W' LN(x)_class + b'
    attn = the attention `symmetric`

LN is LayerNorm.
"""

from __future__ import annotations

import functools

from assay.models.attention import symmetric
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.layers import parameters
from assay.models.layers.heads import AttentionFactory
from assay.models.layers.presets import VIT_BASE, VIT_COMMON, VIT_TINY, Preset
from assay.models.layers.transformer import VisionTransformer

__all__ = ["symvit"]

TASKS = ("classification",)
OFFERS = ("softmax",)
FACTS = parameters.ENCODER_FACTS
RULES = (*parameters.PATCH_RULES, *parameters.WIDTH_RULES)
PAPER = symmetric.PAPER


def symvit(
    classes: parameters.Classes,
    channels: parameters.Channels,
    *,
    image_size: parameters.ImageSize = 224,
    patch_size: parameters.PatchSize = 16,
    width: parameters.Width = 192,
    depth: parameters.Depth = 12,
    heads: parameters.Heads = 3,
    mlp_ratio: parameters.MlpRatio = 4.0,
    dropout: parameters.Dropout = 0.0,
    attention_dropout: parameters.AttentionDropout = 0.0,
    drop_path: parameters.DropPath = 0.1,
) -> parameters.ImageClassifier:
    """Vision transformer with symmetric attention in every layer, at any size.

    The defaults are the published tiny model.
    """
    attention: AttentionFactory = functools.partial(SymmetricAttention, dropout=attention_dropout)
    return VisionTransformer(
        [attention] * depth,
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
    "symvit_tiny": Preset(
        symvit,
        "SymViT-tiny: 12 layers of width 192 with 3 heads; 5,272,744 parameters for 1000 classes.",
        VIT_TINY,
        VIT_COMMON,
    ),
    "symvit_base": Preset(
        symvit,
        "SymViT-base: 12 layers of width 768 with 12 heads; 79,480,552 parameters for 1000 classes.",
        VIT_BASE,
        VIT_COMMON,
    ),
}
