"""Linear Attention-SH: linear attention with heads that see the keys and values at several resolutions.

Nguyen et al., ICLR 2023, end of section 2.3: the linear kernel in equation 25; see `layers/scaled_heads.py`.
No code was released.

    x_f = average of x over windows of f_h tokens
    q = x W_q,    k = x_f W_k,    v = x_f W_v    of head h
    h_i = phi(q_i)^T S / phi(q_i)^T z,  S = sum_j phi(k_j) v_j^T,  z = sum_j phi(k_j),  phi(x) = elu(x) + 1
"""

from __future__ import annotations

from typing import ClassVar

from assay.models.attention import attention_bn
from assay.models.attention.linear import LinearHeads
from assay.models.layers.attention.scaled_heads import FACTOR_RULES, Factors
from assay.models.layers.heads import PrefixTokens

__all__ = ["LinearAttentionSH"]

OFFERS = ("attention_matrix",)
FACTS = {"layout": "qkv", "cost": "linear"}
PAPER = attention_bn.PAPER
RULES = FACTOR_RULES


class LinearAttentionSH(LinearHeads):
    """Linear attention with keys and values of average-pooled tokens, each head with its own factor.

    Args:
        prefix_tokens: tokens before the patches; they are not pooled.
    """

    name: ClassVar[str] = "linear_sh"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self, dim: int, heads: int, *, factors: Factors = None, prefix_tokens: PrefixTokens = 1
    ) -> None:
        super().__init__(dim, heads, factors=factors, prefix_tokens=prefix_tokens)
