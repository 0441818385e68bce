"""Linear Attention-BN: linear attention of queries and keys normalised by the statistics of the keys.

Nguyen et al., ICLR 2023 (`layers/key_normalization.py`), end of section 2.3: the linear kernel in equation
22; in the experiments equation 26, with the beta of table 12. Centring the keys does change the result,
unlike in softmax attention. No code was released.

    mu = mean_j k_j,    s = sqrt(mean_j (k_j - mu)^2 + 1e-5)    feature by feature
    form "beta"    q' = q - beta mu,          k' = k - beta mu
    form "full"    q' = (q - beta mu) / s,    k' = (k - beta mu) / s
    h_i = phi(q'_i)^T S / phi(q'_i)^T z,    phi(x) = elu(x) + 1
    S = sum_j phi(k'_j) v_j^T,    z = sum_j phi(k'_j)

Causal (not in the paper): each token, as query and as key, is normalised once, by the statistics of the keys
up to itself. The last token's output therefore differs from the form without the mask.
"""

from __future__ import annotations

from typing import ClassVar

from assay.models.attention import attention_bn
from assay.models.attention.linear import LinearHeads
from assay.models.layers import parameters
from assay.models.layers.attention.key_normalization import Beta, Form, KeyNormalization
from assay.models.layers.heads import Causal, PrefixTokens

__all__ = ["LinearAttentionBN"]

# A learned beta is a weight of this mechanism alone, so no layout is stated.
OFFERS = ("attention_matrix",)
FACTS = {"causal_form": True, "cost": "linear"}
PAPER = attention_bn.PAPER


class LinearAttentionBN(LinearHeads):
    """Linear attention with queries and keys normalised by the statistics of the keys.

    Args:
        beta: weight of the mean; the authors use 0.15 to 0.75.
        prefix_tokens: tokens before the patches; their keys count in the statistics.
    """

    name: ClassVar[str] = "linear_bn"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        form: Form = "beta",
        beta: Beta = 0.6,
        learn_beta: parameters.LearnBeta = False,
        prefix_tokens: PrefixTokens = 1,
        causal: Causal = False,
    ) -> None:
        normalization = KeyNormalization(form, beta, learn_beta=learn_beta)
        super().__init__(
            dim, heads, factors=[1], normalization=normalization, prefix_tokens=prefix_tokens, causal=causal
        )
