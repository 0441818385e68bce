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

from typing import ClassVar, Unpack

from assay.models.layers.attention.sparse_patterns import PATTERN_RULES, SparseHeads, SparseParameters
from assay.models.layers.heads import Causal

__all__ = ["SparseAttention"]

OFFERS = ("attention_matrix",)
FACTS = {"causal_form": True, "layout": "qkv", "cost": "n sqrt n"}
PAPER = "Child et al., Generating long sequences with sparse transformers, 2019"
RULES = PATTERN_RULES


class SparseAttention(SparseHeads):
    """Softmax attention; a token sees the tokens around it and every l-th, or some of every block."""

    name: ClassVar[str] = "sparse"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self, dim: int, heads: int, *, causal: Causal = False, **shared: Unpack[SparseParameters]
    ) -> None:
        super().__init__(dim, heads, factors=[1], causal=causal, **shared)
