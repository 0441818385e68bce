"""Scaled Attention with S = alpha A_sym: output = proj(A (V - alpha A_sym V)).

Teo and Nguyen, NeurIPS 2024 (`rpc.py`), section 4.3, "Scaled Attention alpha x Asym":

    A = softmax(Q K^T / sqrt(D)),    A_sym = softmax(K K^T / sqrt(D))

alpha is a scalar per layer, from 0, i.e. softmax attention. It replaces 1/N and the reciprocal of the
transpose in appendix E.1, S = (1/N) A_sym / A_sym^T, but learns neither: this differs from the exact S.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from assay.models.attention import rpc
from assay.models.layers.attention.dot_product import DotProductAttention
from assay.models.layers.heads import CausalParameters, attend

__all__ = ["AlphaScaledAttention"]

OFFERS = ("softmax",)
# alpha is a weight of this mechanism alone, so no layout is stated.
FACTS = {"causal_form": True, "cost": "quadratic"}
PAPER = rpc.PAPER


class AlphaScaledAttention(DotProductAttention):
    """Softmax attention with values that lose a learned share of their symmetric attention.

    `alpha` is (1,), which as a vector gets no weight decay.

    Args:
        dropout: share of A's weights that is dropped in training, in [0, 1); A_sym keeps all of its own.
    """

    name: ClassVar[str] = "scaled_alpha"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, **shared: Unpack[CausalParameters]) -> None:
        super().__init__(dim, heads, **shared)
        self.alpha = nn.Parameter(torch.zeros(1))

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """What the softmax attends with, each (B, H, N, D); v is V - alpha A_sym V."""
        queries, keys, values = self.project(x)
        symmetric = attend(keys, keys, values, mask, 0.0, causal=self.causal)
        return queries, keys, values - self.alpha * symmetric
