"""Softmax attention: A = softmax(q k^T / sqrt(D)), output = proj(A v).

Vaswani et al., "Attention is all you need", NeurIPS 2017, equation 1.

    A = softmax(q k^T / sqrt(D)),    output = proj(A v)
"""

from __future__ import annotations

from typing import ClassVar

from assay.models.layers.attention.dot_product import DotProductAttention

__all__ = ["SoftmaxAttention"]

OFFERS = ("softmax",)
FACTS = {"causal_form": True, "layout": "qkv", "cost": "quadratic"}
PAPER = "Vaswani et al., Attention is all you need, NeurIPS 2017"


class SoftmaxAttention(DotProductAttention):
    """Softmax attention with queries, keys and values of their own."""

    name: ClassVar[str] = "softmax"
    permutation_equivariant: ClassVar[bool] = True
