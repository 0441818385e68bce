"""Kernelized attention: a Gaussian kernel in place of the softmax, without normalisation of rows.

Chen et al., NeurIPS 2021 (`skyformer.py`), equation 3; and their released code:

    output = proj(G(q D^-1/4, k D^-1/4) v),    G(x, y) = exp(-|x - y|^2 / 2)

Of masked tokens q, k and the columns of G are zero, and dropout acts on G, as released. The causal form, the
lower triangle of G, was not published.

Without gradients G is made for a few queries at a time: the same products, no N x N matrix.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from assay.models.layers.attention.nystrom import gaussian
from assay.models.layers.attention.projected_attention import ProjectedAttention, without_padding
from assay.models.layers.heads import Causal, HeadParameters

__all__ = ["KernelizedAttention"]

FACTS = {"causal_form": True, "layout": "qkv", "cost": "quadratic"}
PAPER = "Chen et al., Skyformer: Remodel self-attention with Gaussian kernel and Nystrom method, NeurIPS 2021"

QUERIES_AT_A_TIME = 256


class KernelizedAttention(ProjectedAttention):
    """Attention with a Gaussian kernel of query and key as weights.

    Args:
        dropout: share of the kernel matrix that is dropped in training, in [0, 1).
    """

    name: ClassVar[str] = "kernelized"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(
        self, dim: int, heads: int, *, causal: Causal = False, **shared: Unpack[HeadParameters]
    ) -> None:
        super().__init__(dim, heads, **shared)
        self.causal = causal

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """G v, (B, H, N, D); see `ProjectedAttention.mix`."""
        return kernelized(queries, keys, values, mask, causal=self.causal, dropout=self.training_rate())


def kernelized(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """G(q D^-1/4, k D^-1/4) v, (B, H, N, D) as q, k and v; G is lower triangular if causal.

    `mask` is boolean (B, N), true for tokens that take part, and `dropout` the share of G that is dropped.
    """
    scale = queries.shape[-1] ** -0.25
    x, y = (without_padding(part, mask) * scale for part in (queries, keys))
    values = without_padding(values, mask)

    def rows(first: int, stop: int) -> Tensor:
        kernel = gaussian(x[:, :, first:stop], y)  # (B, H, rows, N)
        if causal:
            kernel = kernel.tril(first)
        return drop(kernel, dropout) @ values

    length = x.shape[2]
    size = length if torch.is_grad_enabled() else QUERIES_AT_A_TIME
    parts = [rows(first, min(first + size, length)) for first in range(0, length, max(size, 1))]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
