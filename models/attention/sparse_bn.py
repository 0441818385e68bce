"""Sparse Attention-BN: sparse attention of queries centred by the mean of the keys.

Nguyen et al., ICLR 2023 (`layers/key_normalization.py`), table 10, with the beta of table 12. The statistics
are of all keys, not of the keys that a query sees (not stated); causal: of the keys up to i. Centring the
keys changes nothing. Patterns: `layers/sparse_patterns.py`. No code was released.

    mu = mean_j k_j,    s = sqrt(mean_j (k_j - mu)^2 + 1e-5)    of all keys
    form "beta"    q' = q - beta mu,          k' = k - beta mu
    form "full"    q' = (q - beta mu) / s,    k' = (k - beta mu) / s
    Query i sees key j, with a stride l:
    strided    |i - j| < l, or (i - j) mod l = 0
    fixed      floor(i / l) = floor(j / l), or j mod l >= l - c
    causal     only j <= i of these
    i, j count from the first place after a class token, which sees all and is seen by all
    output = proj(softmax over the seen j (q'_i . k'_j / sqrt(D)) v)
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from assay.models.attention import attention_bn
from assay.models.layers import parameters
from assay.models.layers.attention.key_normalization import Beta, Form, KeyNormalization
from assay.models.layers.attention.sparse_patterns import PATTERN_RULES, SparseHeads, SparseParameters
from assay.models.layers.heads import Causal

__all__ = ["SparseAttentionBN"]

# A learned beta is a weight of this mechanism alone, so no layout is stated.
OFFERS = ("attention_matrix",)
FACTS = {"causal_form": True, "cost": "n sqrt n"}
PAPER = attention_bn.PAPER
RULES = PATTERN_RULES


class SparseAttentionBN(SparseHeads):
    """Sparse attention with queries and keys normalised by the statistics of the keys.

    Args:
        beta: weight of the mean; the authors use 0.1 to 0.9.
    """

    name: ClassVar[str] = "sparse_bn"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        form: Form = "beta",
        beta: Beta = 0.6,
        learn_beta: parameters.LearnBeta = False,
        causal: Causal = False,
        **shared: Unpack[SparseParameters],
    ) -> None:
        normalization = KeyNormalization(form, beta, learn_beta=learn_beta)
        super().__init__(dim, heads, factors=[1], normalization=normalization, causal=causal, **shared)
