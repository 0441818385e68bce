"""Sparse attention: softmax attention over the strided or the fixed pattern of the Sparse Transformer.

Child et al., "Generating long sequences with sparse transformers", 2019, as the baseline of Nguyen et al.,
ICLR 2023, equation 16. The patterns, their two-way form, the class token, and cost, N sqrt(N):
`layers/sparse_patterns.py`.

    Query i sees key j, with a stride l:
    strided    |i - j| < l, or (i - j) mod l = 0
    fixed      floor(i / l) = floor(j / l), or j mod l >= l - c
    causal     only j <= i of these
    i, j count from the first place after a class token, which sees all and is seen by all
    output = proj(softmax over the seen j (q_i . k_j / sqrt(D)) v)
"""

from __future__ import annotations

from typing import ClassVar

from assay.models.layers.attention.sparse_patterns import (
    PATTERN_RULES,
    Pattern,
    PatternName,
    SparseHeads,
    Stride,
    Summary,
)
from assay.models.layers.heads import Causal, Dropout, PrefixTokens, Tokens

__all__ = ["SparseAttention"]

OFFERS = ("attention_matrix",)
FACTS = {"causal_form": True, "layout": "qkv", "cost": "n sqrt n"}
PAPER = "Child et al., Generating long sequences with sparse transformers, 2019"
RULES = PATTERN_RULES


class SparseAttention(SparseHeads):
    """Softmax attention; a token sees the tokens around it and every l-th, or some of every block.

    Args:
        stride: l, in places; the square root of their number in the longest sequence if absent.
    """

    name: ClassVar[str] = "sparse"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        pattern: PatternName = "strided",
        stride: Stride = None,
        summary: Summary = None,
        prefix_tokens: PrefixTokens = 1,
        tokens: Tokens = 197,
        causal: Causal = False,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__(
            dim,
            heads,
            factors=[1],
            pattern=Pattern(pattern, stride, summary),
            prefix_tokens=prefix_tokens,
            tokens=tokens,
            causal=causal,
            dropout=dropout,
        )
