"""The transformer of the UEA experiments.

Zerveas et al., "A Transformer-based Framework for Multivariate Time Series Representation Learning", KDD 2021
(mvts_transformer), the setup of Attention-BN/SH (Nguyen et al., ICLR 2023) for most UEA sets, and the origin
of the code of Primal-Attention (Chen et al., NeurIPS 2023):

    x = sqrt(C) (W v_t + b) + positions;  the encoder (models/layers/sequence_encoder.py);  W' pooled + b'

v_t are the standardised features of step t. Padded steps take no part. The papers state 2 layers, width 512,
8 heads, MLPs of 2048 and learned positions, and neither norm nor pooling; the presets have, by our choice,
mvts_transformer's: BatchNorm after each sum, and the head on the concatenation of all places ("flatten":
GELU, zero at padded steps). The builder's defaults are LayerNorm before each branch, which does not mix
examples in training, and the mean over the steps that exist; "released" divides their sum by the full length.

Deviation: positions are drawn normal with standard deviation 0.02, in the code uniform in [-0.02, 0.02].

B = batch, F = features, T = steps of a row, C = width, K = classes.
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Literal

import torch
from annotated_types import doc
from torch import Tensor, nn
from torch.nn.functional import gelu

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers import parameters
from assay.models.layers.attention.lookup import attention_of_layers
from assay.models.layers.checks import one_of
from assay.models.layers.presets import Preset
from assay.models.layers.sequence_encoder import NormLayer, SequenceEncoder, pool
from assay.models.layers.series_model import split_steps

__all__ = ["series_transformer"]

SeriesPooling = Annotated[
    Literal["mean", "released", "last", "flatten"],
    doc(
        'the vector of a series: the mean over its steps; "released", their sum divided by `length`; "last", '
        'the vector of the last step; or "flatten", all places one after another.'
    ),
]
TokenWidth = Annotated[parameters.Width, doc("width of the tokens, one for each step.")]
RowLength = Annotated[parameters.SequenceLength, doc("steps of a row; no series of the data may have more.")]
NormFirst = Annotated[bool, doc("normalise what enters attention and MLP; false: what leaves their sum.")]
SeriesDropout = Annotated[
    parameters.DropRate, doc("dropout rate of embedding, attention output, MLP and what enters the head.")
]

TASKS = ("series",)
FACTS = {"prefix_tokens": 0, "image_plane": False}
OFFERS = ("softmax",)
RULES = (
    ("model.width % model.heads == 0", "heads must divide width"),
    parameters.layer_rule("layers"),
    ("data.longest <= model.length", "length must be at least the length of the data's longest series"),
    ("part.attention_patches >= model.length", "patches, the size of S, must not be less than length"),
)
PAPER = (
    "Zerveas et al., A Transformer-based Framework for Multivariate Time Series Representation Learning, KDD"
    " 2021; Chen et al., Primal-Attention, NeurIPS 2023; Nguyen et al., A Primal-Dual Framework for"
    " Transformers and Neural Networks, ICLR 2023"
)


def series_transformer(
    classes: parameters.Classes,
    channels: parameters.SeriesFeatures,
    *,
    width: TokenWidth = 64,
    depth: parameters.Depth = 2,
    heads: parameters.Heads = 4,
    hidden: parameters.Hidden = 128,
    length: RowLength = 128,
    attention: parameters.Attention = "softmax",
    layers: parameters.Layers = "all",
    pooling: SeriesPooling = "mean",
    norm: NormLayer = "layer",
    norm_first: NormFirst = True,
    dropout: SeriesDropout = 0.1,
    attention_dropout: parameters.OtherDropout = 0.0,
) -> nn.Module:
    """Transformer classifier of time series with any attention in all or some layers, softmax in the others.

    Returns:
        Module from standardised series (B, F + 1, T), the last channel 1 where a step exists and 0 where not,
        to logits (B, classes).

    Raises:
        ValueError: a rule is broken, or no attention has that name.
    """
    one_of("pooling", pooling, "mean", "released", "last", "flatten")
    softmax = functools.partial(SoftmaxAttention, dropout=attention_dropout)
    encoder = SequenceEncoder(
        attention_of_layers(attention, layers, depth, softmax),
        width=width,
        heads=heads,
        hidden=hidden,
        length=length,
        dropout=dropout,
        norm_first=norm_first,
        final_norm=norm_first,
        normalization=norm,
    )
    return SeriesTransformer(encoder, classes, channels, pooling, dropout)


class SeriesTransformer(nn.Module):
    """A linear embedding of each step, an encoder of width C, pooling, and a linear head.

    Dropout is of what enters the head.
    """

    def __init__(
        self, encoder: SequenceEncoder, classes: int, features: int, pooling: SeriesPooling, dropout: float
    ) -> None:
        super().__init__()
        width = encoder.num_features
        self.pooling = pooling
        self.channels = features
        self.embedding = nn.Linear(features, width)
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width * (encoder.sequence_length if pooling == "flatten" else 1), classes)

    @property
    def blocks(self) -> nn.ModuleList:
        return self.encoder.blocks

    @property
    def series_length(self) -> int:
        """Maximum number of steps of a series."""
        return self.encoder.sequence_length

    def forward(self, series: Tensor) -> Tensor:
        """Logits (B, K) of standardised series (B, F + 1, T), T at most `series_length`.

        Padded steps, and how many there are, change nothing (but with `pooling` "released", and where the
        attention itself minds them).

        Raises:
            ValueError: another shape.
        """
        wanted = (self.channels + 1, self.series_length)
        if series.dim() != 3 or series.shape[1] != wanted[0] or not 1 <= series.shape[2] <= wanted[1]:
            raise ValueError(
                f"series must be (batch, {wanted[0]}, 1 to {wanted[1]}), the last channel for the steps that"
                f" exist: got {tuple(series.shape)}"
            )
        values, present = split_steps(series)
        tokens = self.embedding(values.transpose(1, 2))  # (B, T, C)
        tokens = self.encoder(tokens * math.sqrt(tokens.shape[-1]), present)
        logits: Tensor = self.head(self.dropout(self._pooled(tokens, present)))
        return logits

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters exempt from weight decay, besides vectors."""
        return {"encoder.positions"}

    def _pooled(self, tokens: Tensor, present: Tensor) -> Tensor:
        if self.pooling != "flatten":
            return pool(tokens, present, self.pooling, self.series_length)
        shown = gelu(tokens).masked_fill(~present[..., None], 0.0).flatten(1)  # (B, T C)
        missing = self.head.in_features - shown.shape[1]
        return torch.cat([shown, shown.new_zeros(len(shown), missing)], dim=1) if missing else shown


RELEASED = {"norm": "batch", "norm_first": False}
UEA = {"width": 512, "depth": 2, "heads": 8, "hidden": 2048}
PRESETS = {
    "uea_transformer": Preset(
        series_transformer,
        "The transformer of the UEA experiments: 2 layers of width 512 with 8 heads, MLPs of 2048, BatchNorm"
        " after each sum; 6,459,913 parameters for JapaneseVowels (12 features, 29 steps, 9 classes).",
        UEA,
        RELEASED,
        defaults={"pooling": "flatten"},
    ),
    "primal_plus_uea": Preset(
        series_transformer,
        "Primal.+ on UEA: the same with Primal-Attention in the last layer, whose rank (20 to 40) and eta go"
        " with the data set; 6,216,521 parameters for JapaneseVowels at rank 32.",
        UEA,
        {**RELEASED, "layers": "last"},
        defaults={"pooling": "flatten", "attention": "primal"},
    ),
    "primal_uea": Preset(
        series_transformer,
        "Primal. on UEA: the same with Primal-Attention in both layers; 5,973,129 parameters for"
        " JapaneseVowels at rank 32.",
        UEA,
        {**RELEASED, "layers": "all"},
        defaults={"pooling": "flatten", "attention": "primal"},
    ),
}
