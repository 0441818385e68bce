"""Attention-SH: softmax attention with heads that see the keys and values at several resolutions.

Nguyen et al., ICLR 2023, definition 2 (equation 25); see `layers/scaled_heads.py`. No code was released.

    x_f = average of x over windows of f_h tokens
    q = x W_q,    k = x_f W_k,    v = x_f W_v    of head h
    output = proj(concat_h softmax(q k^T / sqrt(D)) v)
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from assay.models.attention import attention_bn
from assay.models.layers.attention.scaled_heads import FACTOR_RULES, Factors, SoftmaxHeads
from assay.models.layers.heads import HeadParameters

__all__ = ["AttentionSH"]

OFFERS = ("attention_matrix",)
FACTS = {"layout": "qkv", "cost": "quadratic"}
PAPER = attention_bn.PAPER
RULES = FACTOR_RULES


class AttentionSH(SoftmaxHeads):
    """Softmax attention with keys and values of average-pooled tokens, each head with its own factor.

    Args:
        prefix_tokens: tokens before the patches; they are not pooled.
    """

    name: ClassVar[str] = "attention_sh"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self, dim: int, heads: int, *, factors: Factors = None, **shared: Unpack[HeadParameters]
    ) -> None:
        super().__init__(dim, heads, factors=factors, **shared)
