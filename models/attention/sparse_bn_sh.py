"""Sparse Attention-BN+SH: Sparse Attention-BN with heads that see the keys at several resolutions.

Nguyen et al., ICLR 2023, table 10, with the beta of table 12. The statistics of a head are of all its own
pooled keys. Not stated: see `sparse_bn.py` and `sparse_sh.py`. No code was released.

    x_f = average of x over windows of f_h tokens
    q = x W_q,    k = x_f W_k,    v = x_f W_v    of head h
    mu = mean_j k_j,    s = sqrt(mean_j (k_j - mu)^2 + 1e-5)    of the head's own keys
    form "beta"    q' = q - beta mu,          k' = k - beta mu
    form "full"    q' = (q - beta mu) / s,    k' = (k - beta mu) / s
    With p = floor(i / f_h), query i sees key j, with a stride l:
    strided    |p - j| < l, or (p - j) mod l = 0
    fixed      floor(p / l) = floor(j / l), or j mod l >= l - c
    i, j count from the first place after a class token, which sees all and is seen by all
    output = proj(softmax over the seen j (q'_i . k'_j / sqrt(D)) v)
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from assay.models.attention import attention_bn
from assay.models.layers import parameters
from assay.models.layers.attention.key_normalization import Beta, Form, KeyNormalization
from assay.models.layers.attention.scaled_heads import FACTOR_RULES, Factors
from assay.models.layers.attention.sparse_patterns import PATTERN_RULES, SparseHeads, SparseParameters

__all__ = ["SparseAttentionBNSH"]

OFFERS = ("attention_matrix",)
FACTS = {"cost": "n sqrt n"}
PAPER = attention_bn.PAPER
RULES = (*FACTOR_RULES, *PATTERN_RULES)


class SparseAttentionBNSH(SparseHeads):
    """Sparse attention of normalised queries and keys, with keys and values of average-pooled tokens.

    Args:
        beta: weight of the mean; the authors use 0.1 to 0.9.
        stride: l, in pooled keys; the square root of their number in the longest sequence if absent.
    """

    name: ClassVar[str] = "sparse_bn_sh"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        form: Form = "beta",
        beta: Beta = 0.6,
        learn_beta: parameters.LearnBeta = False,
        factors: Factors = None,
        **shared: Unpack[SparseParameters],
    ) -> None:
        normalization = KeyNormalization(form, beta, learn_beta=learn_beta)
        super().__init__(dim, heads, factors=factors, normalization=normalization, **shared)
