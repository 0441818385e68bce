"""Softmax attention: A = softmax(q k^T / sqrt(D)), output = proj(A v).

Vaswani et al., "Attention is all you need", NeurIPS 2017, equation 1.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from assay.models.layers.heads import (
    Causal,
    Dropout,
    PrefixTokens,
    attend,
    check_heads,
    merge_heads,
    split_heads,
)

__all__ = ["SoftmaxAttention"]

OFFERS = ("softmax",)
FACTS = {"causal_form": True, "layout": "qkv"}
PAPER = "Vaswani et al., Attention is all you need, NeurIPS 2017"


class SoftmaxAttention(nn.Module):
    """Softmax attention with queries, keys and values of their own.

    The weights have the layout of timm and DeiT: `qkv` (3C, C) with the row blocks q, k, v, and `proj`.

    Args:
        dim: width C of the tokens.
        heads: number of heads H; must divide `dim`.
        prefix_tokens: tokens before the patches; not used here.
        causal: each token attends to itself and to those before it.
        dropout: share of the attention weights that is dropped in training, in [0, 1).

    Raises:
        ValueError: `heads` does not divide `dim`.
    """

    name: ClassVar[str] = "softmax"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        prefix_tokens: PrefixTokens = 1,
        causal: Causal = False,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.heads = heads
        self.prefix_tokens = prefix_tokens
        self.dropout = dropout
        self.causal = causal
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, x: Tensor, *, grid: tuple[int, int] | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Map tokens (B, N, C) to (B, N, C); `mask` is boolean (B, N), true for tokens that take part."""
        queries, keys, values = self.queries_keys_values(x)
        dropout = self.dropout if self.training else 0.0
        attended = attend(queries, keys, values, mask, dropout, causal=self.causal)
        output: Tensor = self.proj(merge_heads(attended))
        return output

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """What the softmax attends with, each (B, H, N, D)."""
        del mask
        queries, keys, values = split_heads(self.qkv(x), 3, self.heads)
        return queries, keys, values
