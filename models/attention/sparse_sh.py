"""Sparse Attention-SH: sparse attention with heads that see the keys and values at several resolutions.

Nguyen et al., ICLR 2023 (`layers/scaled_heads.py`), table 10. Not stated, and here: the pattern is the
shorter sequence's, in which f queries share the place of their window. No code was released.

    x_f = average of x over windows of f_h tokens
    q = x W_q,    k = x_f W_k,    v = x_f W_v    of head h
    With p = floor(i / f_h), query i sees key j, with a stride l:
    strided    |p - j| < l, or (p - j) mod l = 0
    fixed      floor(p / l) = floor(j / l), or j mod l >= l - c
    i, j count from the first place after a class token, which sees all and is seen by all
    output = proj(softmax over the seen j (q_i . k_j / sqrt(D)) v)
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from assay.models.attention import attention_bn
from assay.models.layers.attention.scaled_heads import FACTOR_RULES, Factors
from assay.models.layers.attention.sparse_patterns import PATTERN_RULES, SparseHeads, SparseParameters

__all__ = ["SparseAttentionSH"]

OFFERS = ("attention_matrix",)
FACTS = {"layout": "qkv", "cost": "n sqrt n"}
PAPER = attention_bn.PAPER
RULES = (*FACTOR_RULES, *PATTERN_RULES)


class SparseAttentionSH(SparseHeads):
    """Sparse attention with keys and values of average-pooled tokens, each head with its own factor.

    Args:
        stride: l, in pooled keys; the square root of their number in the longest sequence if absent.
    """

    name: ClassVar[str] = "sparse_sh"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self, dim: int, heads: int, *, factors: Factors = None, **shared: Unpack[SparseParameters]
    ) -> None:
        super().__init__(dim, heads, factors=factors, **shared)
