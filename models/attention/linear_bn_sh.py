"""Linear Attention-BN+SH: Linear Attention-BN with heads that see keys and values at several resolutions.

Nguyen et al., ICLR 2023 (`layers/key_normalization.py`), table 5: the linear kernel in equations 49 (form
"full") and 51 (form "beta"). A head's statistics are over its own pooled keys. No code was released.

    x_f = average of x over windows of f_h tokens
    q = x W_q,    k = x_f W_k,    v = x_f W_v    of head h
    mu = mean_j k_j,    s = sqrt(mean_j (k_j - mu)^2 + 1e-5)    of the head's own keys
    form "beta"    q' = q - beta mu,          k' = k - beta mu
    form "full"    q' = (q - beta mu) / s,    k' = (k - beta mu) / s
    h_i = phi(q'_i)^T S / phi(q'_i)^T z,    phi(x) = elu(x) + 1
    S = sum_j phi(k'_j) v_j^T,    z = sum_j phi(k'_j)
"""

from __future__ import annotations

from typing import ClassVar

from assay.models.attention import attention_bn
from assay.models.attention.linear import LinearHeads
from assay.models.layers import parameters
from assay.models.layers.attention.key_normalization import Beta, Form, KeyNormalization
from assay.models.layers.attention.scaled_heads import FACTOR_RULES, Factors
from assay.models.layers.heads import PrefixTokens

__all__ = ["LinearAttentionBNSH"]

OFFERS = ("attention_matrix",)
FACTS = {"cost": "linear"}
PAPER = attention_bn.PAPER
RULES = FACTOR_RULES


class LinearAttentionBNSH(LinearHeads):
    """Linear attention of normalised queries and keys, with keys and values of average-pooled tokens.

    Args:
        beta: weight of the mean; the authors use 0.15 to 0.95.
        prefix_tokens: tokens before the patches; they are not pooled, and their keys count in the statistics.
    """

    name: ClassVar[str] = "linear_bn_sh"
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
        prefix_tokens: PrefixTokens = 1,
    ) -> None:
        normalization = KeyNormalization(form, beta, learn_beta=learn_beta)
        super().__init__(
            dim, heads, factors=factors, normalization=normalization, prefix_tokens=prefix_tokens
        )
