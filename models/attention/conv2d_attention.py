"""Attention-Conv2D: softmax attention of queries and keys that are convolved on the image plane.

Nguyen et al., ICLR 2023 (`layers/key_normalization.py`), appendix G, definition 3 (equation 43): a depth-wise
convolution with an s x s kernel and identical kernel channels; the values stay. s = 2 in DeiT. Not stated
there: one kernel in a layer, for queries, keys and all heads; zeros beyond the edges and at masked patches;
no bias; the kernel starts as the identity; the class token is not convolved. No code was released.

    q' = Conv2D(q, s),    k' = Conv2D(k, s)    on the grid of patches
    output = proj(softmax(q' k'^T / sqrt(D)) v)

No causal form: patches have no order that a plane keeps.

N = P + h w tokens, P = prefix tokens.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Unpack

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from assay.models.attention import attention_bn
from assay.models.layers.checks import at_least
from assay.models.layers.heads import Grid, HeadParameters, HeadProjections, attend, split_heads

__all__ = ["Conv2DAttention"]

FACTS = {"cost": "quadratic"}
RULES = (("model.image_plane != False", "conv2d_attention needs the image plane: sequences have none"),)
PAPER = attention_bn.PAPER


class Conv2DAttention(HeadProjections):
    """Softmax attention; each query and each key is a weighted sum over neighbouring patches.

    `kernel` is (s, s), from the patch above and to the left.

    Args:
        size: patches s along each side of the kernel; an even kernel has one more below, and to the right of,
            the patch than before it.
        prefix_tokens: tokens before the patches; they are not convolved.
    """

    name: ClassVar[str] = "conv2d_attention"
    permutation_equivariant: ClassVar[bool] = False
    # Padding at the end of a sequence is no part of a grid.
    padding_invariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        size: Annotated[int, Interval(ge=1, le=31)] = 2,
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        at_least("size", size, 1)
        self.before = (size - 1) // 2
        self.kernel = nn.Parameter(torch.zeros(size, size))
        nn.init.ones_(self.kernel.data[self.before, self.before])

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says. ValueError: no grid, or another than of N - P patches."""
        patches = x.shape[1] - self.prefix_tokens
        if grid is None:
            raise ValueError("conv2d_attention needs the grid of an image's patches: got a sequence")
        if grid[0] * grid[1] != patches:
            raise ValueError(f"grid must have the {patches} patches of the sequence: got {tuple(grid)}")
        queries_keys, values = self.qkv(x).split([2 * x.shape[-1], x.shape[-1]], dim=-1)
        queries, keys = split_heads(self._convolved(queries_keys, grid, mask), 2, self.heads)
        (values,) = split_heads(values, 1, self.heads)
        return self.merge(attend(queries, keys, values, mask, self.training_rate()))

    def _convolved(self, features: Tensor, grid: tuple[int, int], mask: Tensor | None) -> Tensor:
        prefix, rest = features[:, : self.prefix_tokens], features[:, self.prefix_tokens :]
        if not rest.shape[1]:
            return features
        if mask is not None:
            rest = rest.masked_fill(~mask[:, self.prefix_tokens :, None], 0.0)
        after = len(self.kernel) - 1 - self.before
        plane = rest.transpose(1, 2).flatten(0, 1).unflatten(1, grid)  # (B * 2C, h, w)
        filled = pad(plane, (self.before, after, self.before, after))
        convolved = conv2d(filled[:, None], self.kernel.to(features.dtype)[None, None])  # (B * 2C, 1, h, w)
        return torch.cat([prefix, convolved.flatten(1).unflatten(0, (features.shape[0], -1)).mT], dim=1)
