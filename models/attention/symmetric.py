"""Symmetric softmax attention: the keys are the queries, A = softmax(k k^T / sqrt(D)), output = proj(A v).

Teo and Nguyen, NeurIPS 2024 (`rpc.py`), sections 1 and 4.

    A = softmax(k k^T / sqrt(D)),    output = proj(A v)
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from assay.models.attention import rpc
from assay.models.layers.attention.dot_product import DotProductAttention

__all__ = ["SymmetricAttention"]

OFFERS = ("softmax",)
FACTS = {"causal_form": True, "layout": "kv", "cost": "quadratic"}
PAPER = rpc.PAPER


class SymmetricAttention(DotProductAttention):
    """Softmax attention with the keys as queries.

    The weights have the authors' layout: `qkv` (2C, C) with the row blocks k, v, and `proj`.
    """

    name: ClassVar[str] = "symmetric"
    permutation_equivariant: ClassVar[bool] = True
    projections: ClassVar[int] = 2

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the softmax, each (B, H, N, D); q is k."""
        del mask
        keys, values = self.project(x)
        return keys, keys, values
