"""Cosine attention: queries and keys of unit length, A = softmax(s q k^T), output = proj(A v).

Henry et al., "Query-Key Normalization for Transformers", Findings of EMNLP 2020, section 3. Deviation: the
scale s starts at a given value, not at a function of the sequence length; it is learned, as in the paper.

B = batch, N = tokens, C = width (`dim`), H = heads, D = C / H.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn.functional import normalize

from assay.models.layers.heads import PrefixTokens, attend, check_heads, merge_heads, split_heads

__all__ = ["CosineAttention"]

FACTS = {"cost": "quadratic"}
PAPER = "Henry et al., Query-Key Normalization for Transformers, Findings of EMNLP 2020"


class CosineAttention(nn.Module):
    """Softmax attention over the cosines of queries and keys.

    Args:
        dim: width C of the tokens.
        heads: number of heads H; must divide `dim`.
        scale: the factor s before the softmax, at the start of training.
        prefix_tokens: tokens before the patches; not used here.

    Raises:
        ValueError: `heads` does not divide `dim`.
    """

    name: ClassVar[str] = "cosine"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        scale: Annotated[float, Interval(gt=0, le=1000)] = 10.0,
        prefix_tokens: PrefixTokens = 1,
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.heads = heads
        self.prefix_tokens = prefix_tokens
        self.qkv = nn.Linear(dim, 3 * dim)
        self.scale = nn.Parameter(torch.tensor(scale))
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, x: Tensor, *, grid: tuple[int, int] | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Map tokens (B, N, C) to (B, N, C); `mask` is boolean (B, N), true for tokens that take part."""
        queries, keys, values = split_heads(self.qkv(x), 3, self.heads)
        # `attend` divides by sqrt(D); the cosines want the scale alone.
        queries = normalize(queries, dim=-1) * self.scale * math.sqrt(queries.shape[-1])  # (B, H, N, D)
        output: Tensor = self.proj(merge_heads(attend(queries, normalize(keys, dim=-1), values, mask, 0.0)))
        return output
