"""Scaled dot-product attention with what a mechanism makes of the tokens: output = proj(A v).

Vaswani et al., "Attention is all you need", NeurIPS 2017, equation 1: A = softmax(q k^T / sqrt(D)).
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from assay.models.layers.heads import Causal, Grid, HeadParameters, HeadProjections, attend


class DotProductAttention(HeadProjections):
    """What the mechanisms share that change queries, keys or values and not the softmax.

    The weights are `proj` (C, C) and `qkv` (`projections` * C, C), with the row blocks q, k, v (timm's and
    DeiT's layout) or k, v (the RPC authors'). If `causal`, each token attends to itself and to those before
    it. Dropout is the share of the attention weights that is dropped in training, in [0, 1).
    """

    def __init__(
        self, dim: int, heads: int, *, causal: Causal = False, **shared: Unpack[HeadParameters]
    ) -> None:
        super().__init__(dim, heads, **shared)
        self.causal = causal

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says."""
        queries, keys, values = self.queries_keys_values(x, mask)
        return self.merge(attend(queries, keys, values, mask, self.training_rate(), causal=self.causal))

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """What the softmax attends with, each (B, H, N, D)."""
        del mask
        queries, keys, values = self.project(x)
        return queries, keys, values
