"""Primal-ViT: the usual vision transformer with Primal-Attention.

    x = [class token; W patch + b] + positions
    x = x + attn(LN(x)),    x = x + W2 gelu(W1 LN(x) + b1) + b2    in each of `depth` layers
    logits = W' LN(x)_class + b'
    attn = the attention `primal` in `primal_layers`, `softmax` in the others

LN is LayerNorm.
"""

from __future__ import annotations

import functools

from assay.models.attention import primal
from assay.models.attention.primal import PrimalAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers import parameters
from assay.models.layers.attention.lookup import attention_of_layers
from assay.models.layers.heads import AttentionFactory, Dropout
from assay.models.layers.presets import VIT_COMMON, VIT_SMALL, Preset
from assay.models.layers.transformer import VisionTransformer

__all__ = ["primal_vit"]

TASKS = ("classification",)
OFFERS = ("kernel_matrix",)
FACTS = parameters.ENCODER_FACTS
RULES = (
    *parameters.PATCH_RULES,
    *parameters.WIDTH_RULES,
    parameters.layer_rule("primal_layers"),
    (
        "model.projection != 'data_independent' or model.primal_layers != 'all' and "
        "(len(model.primal_layers) < model.depth or model.primal_layers in ('first', 'last') and "
        "model.depth > 1)",
        "projection must not be data_independent in every layer: the class token would see no patch",
    ),
)
PAPER = primal.PAPER


def primal_vit(
    classes: parameters.Classes,
    channels: parameters.Channels,
    *,
    image_size: parameters.ImageSize = 224,
    patch_size: parameters.PatchSize = 16,
    width: parameters.Width = 384,
    depth: parameters.Depth = 12,
    heads: parameters.Heads = 6,
    mlp_ratio: parameters.MlpRatio = 4.0,
    primal_layers: parameters.Layers = "last",
    rank: primal.Rank = 96,
    rank_multi: primal.RankMulti = 10,
    projection: primal.Projection = "data_dependent",
    r_scores: primal.KeyScores = True,
    eta: primal.Eta = 0.05,
    ksvd_form: primal.KsvdForm = "code",
    ksvd_reduction: primal.KsvdReduction = "batch",
    ksvd_trace: primal.KsvdTrace = "parameters",
    dropout: parameters.Dropout = 0.0,
    attention_dropout: Dropout = 0.0,
    drop_path: parameters.DropPath = 0.1,
) -> parameters.ImageClassifier:
    """Vision transformer with Primal-Attention in the last or other layers, and softmax in the rest.

    The defaults are the published Primal.+DeiT-Small/16; primal_layers = "all" is Primal.

    Args:
        primal_layers: the layers with Primal-Attention: all, first, last, or a list of layer numbers from 0.
        rank: projection directions s of each head; the paper has 32, 64 and 96.
        rank_multi: s rank_multi rows of the layer's input are sampled, at most all.
        projection: projection weights of sampled rows ("data_dependent"), or parameters ("data_independent").
        ksvd_reduction: the square of the batch's mean ("batch"), as released for images, or the mean of each
            image's square ("example").
        attention_dropout: dropout rate of the attention weights; with Primal-Attention, of its output.
    """
    projected: AttentionFactory = functools.partial(
        PrimalAttention,
        rank=rank,
        rank_multi=rank_multi,
        projection=projection,
        r_scores=r_scores,
        eta=eta,
        ksvd_form=ksvd_form,
        ksvd_reduction=ksvd_reduction,
        ksvd_trace=ksvd_trace,
        dropout=attention_dropout,
    )
    softmax: AttentionFactory = functools.partial(SoftmaxAttention, dropout=attention_dropout)
    return VisionTransformer(
        attention_of_layers(projected, primal_layers, depth, softmax),
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
    "primal_plus_deit_small": Preset(
        primal_vit,
        "Primal.+DeiT-Small/16: Primal-Attention in the last layer; 22,142,696 parameters for 1000 classes.",
        VIT_SMALL,
        VIT_COMMON | {"primal_layers": "last"},
    ),
    "primal_deit_small": Preset(
        primal_vit,
        "Primal.DeiT-Small/16: Primal-Attention in all 12 layers; 23,155,048 parameters for 1000 classes.",
        VIT_SMALL,
        VIT_COMMON | {"primal_layers": "all"},
    ),
}
