"""Class attention: blocks that update only the class token, from all tokens.

Touvron et al., "Going deeper with image transformers" (CaiT), ICCV 2021, section 3; in the form that XCiT
(El-Nouby et al., NeurIPS 2021) and FAN (Zhou et al., ICML 2022) release, which also normalises the patches.

In the tokens N the class token is the first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.models.layers.heads import attend, check_heads, merge_heads, split_heads
from assay.models.layers.layers import LAYER_NORM_EPSILON, Mlp


class ClassAttention(nn.Module):
    """Class token's softmax attention, (B, N, C) to (B, 1, C). ValueError unless `heads` divides `width`."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from the class token of (B, N, C) to all tokens."""
        (queries,) = split_heads(self.q(x[:, :1]), 1, self.heads)  # (B, H, 1, D)
        (keys,) = split_heads(self.k(x), 1, self.heads)  # (B, H, N, D)
        (values,) = split_heads(self.v(x), 1, self.heads)
        output: Tensor = self.dropout(self.proj(merge_heads(attend(queries, keys, values, None, 0.0))))
        return output


class ClassAttentionBlock(nn.Module):
    """Class attention and an MLP on the class token, each scaled by a learned vector: (B, N, C) to (B, N, C).

    As released, with z = LayerNorm(x), patch tokens go from x to 2 LayerNorm(x + gamma1 z). The MLP has
    `mlp_ratio` times C hidden units; dropout acts inside and after the MLP and after the attention.
    """

    def __init__(self, width: int, heads: int, *, mlp_ratio: float, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.attn = ClassAttention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.mlp = Mlp(width, int(width * mlp_ratio), dropout)
        self.dropout = nn.Dropout(dropout)
        self.gamma1 = nn.Parameter(torch.ones(width))
        self.gamma2 = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to (B, N, C), the class token first."""
        normed = self.norm1(x)
        attended = torch.cat([self.attn(normed), normed[:, 1:]], dim=1)
        normed = self.norm2(x + self.gamma1 * attended)
        updated = self.gamma2 * self.dropout(self.mlp(normed[:, :1]))
        output: Tensor = normed + torch.cat([updated, normed[:, 1:]], dim=1)
        return output
