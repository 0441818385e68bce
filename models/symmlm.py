"""Symmlm: the transformer language model with keys = queries.

    x = sqrt(C) E[token] + positions                 sines, then cosines
    x = LN(x + attn(x)),    x = LN(x + W2 relu(W1 x + b1) + b2)    in each of `depth` layers
    p(next token) = adaptive softmax of x:
    log p(w) = log softmax(head)_w                   w of the first cluster
    log p(w) = log softmax(head)_k + log softmax(E_k x + b_k)_w    w of a later cluster k
    head = E_0 x + b_0 and one number for each later cluster; C = width, E_k = the rows of E of cluster k
    attn = the attention `symmetric`; causal

LN is LayerNorm.
"""

from __future__ import annotations

import functools

from assay.models.attention import symmetric
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.layers import parameters
from assay.models.layers.causal_transformer import CausalTransformer, Initialization
from assay.models.layers.heads import CausalFactory
from assay.models.layers.presets import Preset

__all__ = ["symmlm"]

TASKS = ("language",)
OFFERS = ("softmax", "word_vectors")
RULES = parameters.LANGUAGE_RULES
FACTS = parameters.LANGUAGE_FACTS | {"layout": "kv"}
PAPER = symmetric.PAPER


def symmlm(
    classes: parameters.Words,
    channels: parameters.Words,
    *,
    width: parameters.Width = 128,
    depth: parameters.Depth = 16,
    heads: parameters.Heads = 8,
    hidden: parameters.Hidden = 2048,
    length: parameters.SequenceLength = 256,
    cutoffs: parameters.Cutoffs = parameters.PUBLISHED_CUTOFFS,
    dropout: parameters.LanguageDropout = 0.1,
    attention_dropout: parameters.AttentionDropout = 0.0,
    initialization: Initialization = "released",
) -> parameters.WordPredictor:
    """Transformer language model with symmetric attention in every layer.

    The defaults are the published model: 43,756,250 parameters for 267,735 words.
    """
    del classes
    attention: CausalFactory = functools.partial(SymmetricAttention, dropout=attention_dropout)
    return CausalTransformer(
        [attention] * depth,
        vocabulary=channels,
        length=length,
        width=width,
        heads=heads,
        hidden=hidden,
        cutoffs=cutoffs,
        dropout=dropout,
        initialization=initialization,
    )


# A size that trains on a laptop in minutes; over 30,000 words a plain softmax would be most of a step on a
# CPU.
TINY = {"width": 64, "depth": 4, "heads": 4, "hidden": 256}
TINY_COMMON = {"cutoffs": [2_000, 10_000], "initialization": "scaled", "attention_dropout": 0.0}
PRESETS = {
    "symmlm_tiny": Preset(
        symmlm,
        "Symmlm with 4 layers of width 64, cut-offs at 2,000 and 10,000; 832,593 parameters for 10,000"
        " words.",
        TINY,
        TINY_COMMON,
        defaults={"length": 64},
    )
}
