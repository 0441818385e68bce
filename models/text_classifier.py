"""A classifier of texts: a language model without its output layer, one vector of its words, a linear layer.

The encoder is causal, as in Teo and Nguyen (NeurIPS 2024, appendix E.8), who put RPC-Attention into trained
language models for fine-tuning. The weights have the same layout, so that a classifier with RPC can start
from a language model without it:

    {"name": "text_classifier", "weights": {"job": ..., "part": "backbone"}, "params": {"backbone":
        {"name": "rpc_symmlm", "params": {"rpc_layers": "all", "iterations": 2}}}}

    f_i = the backbone's vector of word i, of N words
    u = 1/N sum_i f_i    pooling = "mean";    u = f_N    pooling = "last"
    logits = W u + b

Not offered: the paper's sparse mixtures of experts (SMoE, SymSMoE), for which no configuration was published.
The paper does not state the pooling.

B = batch, N = tokens, C = width, K = classes.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any, ClassVar, Literal, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop

from assay.models.attention import rpc
from assay.models.layers import parameters
from assay.models.layers.checks import one_of
from assay.models.layers.encoders import Backbone
from assay.models.layers.language import PAD
from assay.models.layers.parameters import DropRate
from assay.models.layers.token_model import word_vectors
from assay.models.lm import lm

__all__ = ["text_classifier"]

TASKS = ("sequence",)
OFFERS = ("softmax", "word_vectors")
RULES = (("data.words == True", "text_classifier is for sentences of words"),)
PAPER = rpc.PAPER

Pooling = Literal["mean", "last"]


class WordEncoder(Protocol):
    """An encoder with a vector per word; the model that makes it states the fact `word_features`."""

    # Name prefixes of weights that only a language model has, not an encoder.
    CLASSIFIER_ONLY: ClassVar[tuple[str, ...]]

    sequence_length: int
    num_features: int

    def as_encoder(self) -> None:
        """Permanently remove the parts needed only for predicting words."""

    def features(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Vectors (B, N, C) of tokens, int64 (B, N); padding, where `present` is false, changes no other."""


def text_classifier(
    classes: parameters.Classes,
    channels: int,
    *,
    backbone: Annotated[Backbone, "model:word_features"] = lm,
    pooling: Pooling = "mean",
    dropout: DropRate = 0.1,
) -> nn.Module:
    """Classifier of texts with a transformer language model as encoder.

    Args:
        channels: words of the vocabulary.
        backbone: the language model with its parameters; its `length` is the longest text.
        pooling: the vector of a text: the mean over its words, or the last word's, which has seen all others.
        dropout: dropout rate of that vector; the backbone has its own.

    Returns:
        Module from tokens, int64 (B, N) with 0 for padding at the right, to logits (B, classes).

    Raises:
        ValueError: the backbone gives no vectors of words, or there is no such pooling.
    """
    builder: Any = backbone
    options = {"encoder": True} if "encoder" in inspect.signature(builder).parameters else {}
    built = builder(channels, channels, **options)
    if not hasattr(built, "features") or not hasattr(built, "as_encoder"):
        raise ValueError(f"backbone must be a language model: got {type(built).__name__}")
    return TextClassifier(cast(WordEncoder, built), classes, pooling, dropout)


class TextClassifier(nn.Module):
    """An encoder of words, permanently made one by `as_encoder`, pooling, and a linear layer.

    With 0 classes the pooled vector, which dropout acts on, is the output. A pooling other than "mean" and
    "last" is a ValueError.
    """

    def __init__(self, encoder: WordEncoder, classes: int, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        one_of("pooling", pooling, "mean", "last")
        encoder.as_encoder()
        self.encoder = encoder
        self.pooling = pooling
        self.dropout = dropout
        self.head = nn.Linear(encoder.num_features, classes) if classes else nn.Identity()

    @property
    def sequence_length(self) -> int:
        """Maximum number of tokens of a text."""
        return self.encoder.sequence_length

    def word_vectors(self) -> nn.Embedding:
        """The layer of the encoder that makes words vectors.

        Raises:
            ValueError: the encoder does not say which it is.
        """
        return word_vectors(cast(nn.Module, self.encoder))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, K) of tokens, int64 (B, N); PAD at the right has no effect.

        A text without words counts as one word, PAD.

        Raises:
            ValueError: N is 0, or more than `sequence_length`.
        """
        if tokens.dim() != 2 or not 1 <= tokens.shape[1] <= self.sequence_length:
            raise ValueError(
                f"tokens must be (batch, 1 to {self.sequence_length}): got {tuple(tokens.shape)}"
            )
        present = torch.cat([torch.ones_like(tokens[:, :1], dtype=torch.bool), tokens[:, 1:] != PAD], dim=1)
        features = self.encoder.features(tokens, present)  # (B, N, C)
        logits: Tensor = self.head(drop(self._pooled(features, present), self.dropout, self.training))
        return logits

    def _pooled(self, features: Tensor, present: Tensor) -> Tensor:
        lengths = present.sum(dim=1)  # (B,)
        if self.pooling == "last":
            rows = torch.arange(len(features), device=features.device)
            return features[rows, lengths - 1]
        kept = features.masked_fill(~present[..., None], 0.0)
        return kept.sum(dim=1) / lengths[:, None]
