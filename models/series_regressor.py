"""A regression on multivariate time series: the network of `series_transformer` with one output.

Nguyen et al., "A Primal-Dual Framework for Transformers and Neural Networks", ICLR 2023, appendix B.3
(regression archive of Tan et al. 2021). Not stated: the sizes of the network, and its head, here linear on
the pooled vector. See `models/series_transformer.py`.

    x = sqrt(C) (W v_t + b) + positions,    v_t = the standardised features of step t, C = width
    prediction = W' pooled(encoder(x)) + b'    in standard deviations of the targets from their mean

B = batch, F = features, T = steps of a row.
"""

from __future__ import annotations

from torch import nn

from assay.models.layers import parameters
from assay.models.layers.parameters import Depth, Heads, Hidden, Layers
from assay.models.layers.sequence_encoder import NormLayer
from assay.models.series_transformer import FACTS as SERIES_FACTS
from assay.models.series_transformer import RULES as SERIES_RULES
from assay.models.series_transformer import (
    NormFirst,
    RowLength,
    SeriesDropout,
    SeriesPooling,
    TokenWidth,
    series_transformer,
)

__all__ = ["series_regressor"]

TASKS = ("series_regression",)
FACTS = SERIES_FACTS
OFFERS = ("softmax",)
RULES = SERIES_RULES
PAPER = (
    "Nguyen et al., A Primal-Dual Framework for Transformers and Neural Networks, ICLR 2023; Tan et al., Time"
    " Series Extrinsic Regression, DMKD 2021"
)


def series_regressor(
    classes: int,
    channels: parameters.SeriesFeatures,
    *,
    width: TokenWidth = 64,
    depth: Depth = 2,
    heads: Heads = 4,
    hidden: Hidden = 128,
    length: RowLength = 128,
    attention: parameters.Attention = "softmax",
    layers: Layers = "all",
    pooling: SeriesPooling = "mean",
    norm: NormLayer = "layer",
    norm_first: NormFirst = True,
    dropout: SeriesDropout = 0.1,
    attention_dropout: parameters.OtherDropout = 0.0,
) -> nn.Module:
    """Transformer that predicts a number from a time series, any attention in all or some layers.

    Args:
        classes: number of outputs, 1.

    Returns:
        Module from standardised series (B, F + 1, T), the last channel 1 where a step exists and 0 where not,
        to the standardised target (B, 1).

    Raises:
        ValueError: `classes` is not 1, a rule is broken, or no attention has that name.
    """
    if classes != 1:
        raise ValueError(f"a regression has 1 output: got {classes}")
    return series_transformer(
        classes,
        channels,
        width=width,
        depth=depth,
        heads=heads,
        hidden=hidden,
        length=length,
        attention=attention,
        layers=layers,
        pooling=pooling,
        norm=norm,
        norm_first=norm_first,
        dropout=dropout,
        attention_dropout=attention_dropout,
    )
