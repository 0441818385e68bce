"""RPC-Symmlm: Symmlm with causal RPC-Attention.

    x = sqrt(C) E[token] + positions                 sines, then cosines
    x = LN(x + attn(x)),    x = LN(x + W2 relu(W1 x + b1) + b2)    in each of `depth` layers
    p(next token) = adaptive softmax of x:
    log p(w) = log softmax(head)_w                   w of the first cluster
    log p(w) = log softmax(head)_k + log softmax(E_k x + b_k)_w    w of a later cluster k
    head = E_0 x + b_0 and one number for each later cluster; C = width, E_k = the rows of E of cluster k
    attn = the attention `rpc_causal` in `rpc_layers`, `symmetric` in the others; causal

LN is LayerNorm.
"""

from __future__ import annotations

import functools
from typing import Annotated

from assay.models.attention import rpc
from assay.models.attention.rpc_causal import CAUSAL_WITH, CausalRPCAttention, MuTokens
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.layers import parameters
from assay.models.layers.causal_transformer import CausalTransformer, Initialization
from assay.models.layers.heads import CausalFactory
from assay.models.layers.presets import Preset
from assay.models.symmlm import TINY, TINY_COMMON

__all__ = ["rpc_symmlm"]

TASKS = ("language",)
OFFERS = ("word_vectors",)
RULES = (
    *parameters.LANGUAGE_RULES,
    parameters.layer_rule("rpc_layers"),
    parameters.past_rule(*CAUSAL_WITH, "model"),
)
FACTS = parameters.LANGUAGE_FACTS | {"layout": "kv"}
PAPER = rpc.PAPER

FIRST_FOUR: parameters.Layers = [0, 1, 2, 3]


def rpc_symmlm(
    classes: parameters.Words,
    channels: parameters.Words,
    *,
    width: parameters.Width = 128,
    depth: parameters.Depth = 16,
    heads: parameters.Heads = 8,
    hidden: parameters.Hidden = 2048,
    length: parameters.SequenceLength = 256,
    cutoffs: parameters.Cutoffs = parameters.PUBLISHED_CUTOFFS,
    rpc_layers: parameters.RpcLayers = FIRST_FOUR,
    iterations: rpc.Iterations = 4,
    regularization: rpc.Regularization = 4.0,
    threshold: rpc.Threshold = "code",
    mu_width: rpc.MuWidth = "full",
    mu_tokens: MuTokens = "prefix",
    dual_sign: rpc.DualSign = -1,
    dropout: parameters.LanguageDropout = 0.1,
    attention_dropout: parameters.RpcDropout = 0.0,
    initialization: Initialization = "released",
    encoder: Annotated[bool, "system"] = False,
) -> parameters.WordPredictor:
    """Transformer language model with causal RPC-Attention in some layers, and symmetric in the rest.

    The defaults are the published model, with four iterations in layers 1 to 4: 43,756,250 parameters for
    267,735 words.

    Args:
        mu_tokens: what mu is taken over: the tokens up to each one ("prefix"), or all ("sequence"), which
            only a text classifier's encoder may have, as later tokens are seen.
        encoder: it only gives vectors of words, so that attention may see later tokens.
    """
    del classes
    chosen = parameters.select_layers(rpc_layers, depth)
    robust: CausalFactory = functools.partial(
        CausalRPCAttention,
        iterations=iterations,
        regularization=regularization,
        threshold=threshold,
        mu_width=mu_width,
        mu_tokens=mu_tokens,
        dual_sign=dual_sign,
        dropout=attention_dropout,
    )
    symmetric: CausalFactory = functools.partial(SymmetricAttention, dropout=attention_dropout)
    return CausalTransformer(
        [robust if layer in chosen else symmetric for layer in range(depth)],
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


PRESETS = {
    "rpc_symmlm_tiny": Preset(
        rpc_symmlm,
        "The same size with causal RPC-Attention in the first layer: 832,593 parameters for 10,000 words.",
        TINY,
        TINY_COMMON
        | {
            "rpc_layers": "first",
            "threshold": "code",
            "mu_width": "full",
            "mu_tokens": "prefix",
            "dual_sign": -1,
        },
        defaults={"length": 64},
    )
}
