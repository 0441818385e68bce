"""Attention that is not a softmax over all tokens: output = proj(mix(q, k, v))."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from assay.models.layers.heads import Grid, HeadProjections, split_heads


class ProjectedAttention(HeadProjections, ABC):
    """Projections of the tokens around `mix`, which computes in float32 at least, also under autocast.

    The weights are `qkv` (3C, C) with the row blocks q, k, v, and `proj`, as in softmax attention.
    """

    @abstractmethod
    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """The mechanism without its projections, (B, H, N, D), as queries, keys and values, float32 at least.

        `mask` is boolean (B, N), true for tokens that take part; None = all.
        """

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says."""
        projected = self.qkv(x)
        wide = projected.to(torch.promote_types(projected.dtype, torch.float32))
        with torch.autocast(x.device.type, enabled=False):
            queries, keys, values = split_heads(wide, 3, self.heads)
            mixed = self.mix(queries, keys, values, mask)
        return self.merge(mixed.to(projected.dtype))


def without_padding(values: Tensor, mask: Tensor | None) -> Tensor:
    """(B, H, N, D) with zeros in the rows of tokens that take no part."""
    return values if mask is None else values.masked_fill(~mask[:, None, :, None], 0.0)
