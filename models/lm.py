"""A transformer language model with any causal attention.

    x = sqrt(C) E[token] + positions                 sines, then cosines
    x = LN(x + attn(x)),    x = LN(x + W2 relu(W1 x + b1) + b2)    in each of `depth` layers
    p(next token) = adaptive softmax of x:
    log p(w) = log softmax(head)_w                   w of the first cluster
    log p(w) = log softmax(head)_k + log softmax(E_k x + b_k)_w    w of a later cluster k
    head = E_0 x + b_0 and one number for each later cluster; C = width, E_k = the rows of E of cluster k
    attn = `attention` in `layers`, softmax attention in the others; causal

LN is LayerNorm.
"""

from __future__ import annotations

from typing import Annotated, cast

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers import parameters
from assay.models.layers.attention.lookup import find_attention
from assay.models.layers.causal_transformer import CausalTransformer, Initialization
from assay.models.layers.heads import AttentionFactory, CausalFactory, has_causal_form

__all__ = ["lm"]

TASKS = ("language",)
OFFERS = ("softmax", "word_vectors")
RULES = (
    *parameters.LANGUAGE_RULES,
    parameters.layer_rule("layers"),
    ("part.attention_patches >= model.length", "patches, the size of S, must not be less than length"),
)
FACTS = parameters.LANGUAGE_FACTS | {"layout": "qkv"}
PAPER = (
    "Vaswani et al., Attention is all you need, NeurIPS 2017; Baevski and Auli, Adaptive input"
    " representations for neural language modeling, ICLR 2019"
)


def lm(
    classes: parameters.Words,
    channels: parameters.Words,
    *,
    width: parameters.Width = 128,
    depth: parameters.Depth = 16,
    heads: parameters.Heads = 8,
    hidden: parameters.Hidden = 2048,
    length: parameters.SequenceLength = 256,
    cutoffs: parameters.Cutoffs = parameters.PUBLISHED_CUTOFFS,
    attention: Annotated[AttentionFactory | str, "attention:causal_form"] = "softmax",
    layers: parameters.Layers = "all",
    dropout: parameters.LanguageDropout = 0.1,
    initialization: Initialization = "released",
    encoder: Annotated[bool, "system"] = False,
) -> parameters.WordPredictor:
    """Transformer language model with any causal attention in all or some layers, softmax in the others.

    The defaults are the small model of the authors' code: 44,018,394 parameters for 267,735 words.

    Args:
        attention: the attention mechanism with its parameters, or its name; one with a causal form.
        encoder: it only gives vectors of words, so that attention may see later tokens.

    Raises:
        ValueError: a rule is broken, no attention has that name, or it has no causal form
            or sees later tokens.
    """
    del classes
    chosen = parameters.select_layers(layers, depth)
    factory = find_attention(attention) if isinstance(attention, str) else attention
    if not has_causal_form(factory):
        raise ValueError(f"attention must have a causal form: {attention!r} has none")
    causal = cast(CausalFactory, factory)
    return CausalTransformer(
        [causal if layer in chosen else SoftmaxAttention for layer in range(depth)],
        vocabulary=channels,
        length=length,
        width=width,
        heads=heads,
        hidden=hidden,
        cutoffs=cutoffs,
        dropout=dropout,
        initialization=initialization,
        encoder=encoder,
    )
