"""Attention-BN+SH: Attention-BN with heads that see the keys and values at several resolutions.

Nguyen et al., ICLR 2023, appendix I, definition 5: equations 49 and 50 (form "full") and 51 (form "beta"). A
head's statistics are over its own pooled keys. See `layers/key_normalization.py` and
`layers/scaled_heads.py`. No code was released.

    x_f = average of x over windows of f_h tokens
    q = x W_q,    k = x_f W_k,    v = x_f W_v    of head h
    mu = mean_j k_j,    s = sqrt(mean_j (k_j - mu)^2 + 1e-5)    of the head's own keys
    form "beta"    q' = q - beta mu,          k' = k - beta mu
    form "full"    q' = (q - beta mu) / s,    k' = (k - beta mu) / s
    output = proj(concat_h softmax(q' k'^T / sqrt(D)) v)
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from assay.models.attention import attention_bn
from assay.models.layers import parameters
from assay.models.layers.attention.key_normalization import Beta, Form, KeyNormalization
from assay.models.layers.attention.scaled_heads import FACTOR_RULES, Factors, SoftmaxHeads
from assay.models.layers.heads import HeadParameters

__all__ = ["AttentionBNSH"]

OFFERS = ("attention_matrix",)
FACTS = {"cost": "quadratic"}
PAPER = attention_bn.PAPER
RULES = FACTOR_RULES


class AttentionBNSH(SoftmaxHeads):
    """Softmax attention of normalised queries and keys, with keys and values of average-pooled tokens.

    Args:
        beta: weight of the mean; the authors use 1 on ImageNet and 0.1 to 1 elsewhere.
        prefix_tokens: tokens before the patches; they are not pooled, and their keys count in the statistics.
    """

    name: ClassVar[str] = "attention_bn_sh"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        form: Form = "beta",
        beta: Beta = 1.0,
        learn_beta: parameters.LearnBeta = False,
        factors: Factors = None,
        **shared: Unpack[HeadParameters],
    ) -> None:
        normalization = KeyNormalization(form, beta, learn_beta=learn_beta)
        super().__init__(dim, heads, factors=factors, normalization=normalization, **shared)
