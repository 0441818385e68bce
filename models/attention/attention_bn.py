"""Attention-BN: softmax attention of queries and keys that are centred by the mean of the keys.

Nguyen et al., ICLR 2023 (`layers/key_normalization.py`), definition 1 and equations 22, 23 and 26. In the
form "beta" every term that does not depend on the key cancels in the softmax: the mechanism is softmax((q -
beta mu) k^T / sqrt(D)) v. The residual form of appendix F (equation 36) is every block's residual connection.
No code was released.

    mu = mean_j k_j,    s = sqrt(mean_j (k_j - mu)^2 + 1e-5)    feature by feature
    form "beta"    q' = q - beta mu,          k' = k - beta mu
    form "full"    q' = (q - beta mu) / s,    k' = (k - beta mu) / s
    output = proj(softmax(q' k'^T / sqrt(D)) v)

Causal: the mean, and the variance, of query i are of the keys up to i.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from torch import Tensor

from assay.models.layers import parameters
from assay.models.layers.attention.dot_product import DotProductAttention
from assay.models.layers.attention.key_normalization import Beta, Form, KeyNormalization
from assay.models.layers.heads import CausalParameters

__all__ = ["AttentionBN"]

OFFERS = ("softmax",)
# A learned beta is a weight of this mechanism alone, so no layout is stated.
FACTS = {"causal_form": True, "cost": "quadratic"}
PAPER = "Nguyen et al., A primal-dual framework for transformers and neural networks, ICLR 2023"


class AttentionBN(DotProductAttention):
    """Softmax attention with queries and keys normalised by the statistics of the keys.

    Args:
        beta: weight of the mean; the authors use 1 on ImageNet and 0.1 to 1.2 elsewhere.
        prefix_tokens: tokens before the patches; their keys count in the statistics.
    """

    name: ClassVar[str] = "attention_bn"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        form: Form = "beta",
        beta: Beta = 1.0,
        learn_beta: parameters.LearnBeta = False,
        **shared: Unpack[CausalParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        self.normalization = KeyNormalization(form, beta, learn_beta=learn_beta)

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the softmax, each (B, H, N, D), q and k normalised; if causal, all of it in q."""
        queries, keys, values = self.project(x)
        if self.causal:
            return self.normalization.folded(queries, keys, mask), keys, values
        return (*self.normalization(queries, keys, mask), values)
