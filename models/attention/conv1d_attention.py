"""Attention-Conv1D: softmax attention of queries and keys that are convolved along the tokens.

Nguyen et al., ICLR 2023 (`layers/key_normalization.py`), appendix H, definition 4 (equation 45): a depth-wise
convolution with identical kernel channels; the values stay. s = 5 on LRA. Not stated there: one kernel in a
layer, for queries, keys and all heads; zeros beyond the ends and at padding; no bias; the kernel starts as
the identity; the class token is not convolved. No code was released.

    q' = Conv1D(q, s),    k' = Conv1D(k, s)    along the tokens
    output = proj(softmax(q' k'^T / sqrt(D)) v)

Causal: the kernel covers the token and the s - 1 tokens before it.

P = prefix tokens.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Unpack

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from assay.models.attention import attention_bn
from assay.models.layers.attention.dot_product import DotProductAttention
from assay.models.layers.checks import at_least
from assay.models.layers.heads import CausalParameters, split_heads

__all__ = ["Conv1DAttention"]

OFFERS = ("softmax",)
# The kernel is a weight of this mechanism alone, so no layout is stated.
FACTS = {"causal_form": True, "cost": "quadratic"}
PAPER = attention_bn.PAPER


class Conv1DAttention(DotProductAttention):
    """Softmax attention; each query and each key is a weighted sum over neighbouring tokens.

    `kernel` is (s,), from the earliest token to the latest.

    Args:
        size: tokens s of the kernel; an even kernel has one more after the token than before it.
        prefix_tokens: tokens before the patches; they are not convolved.
    """

    name: ClassVar[str] = "conv1d_attention"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        size: Annotated[int, Interval(ge=1, le=255)] = 5,
        **shared: Unpack[CausalParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        at_least("size", size, 1)
        self.before = size - 1 if self.causal else (size - 1) // 2
        self.kernel = nn.Parameter(torch.zeros(size))
        nn.init.ones_(self.kernel.data[self.before])

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the softmax, each (B, H, N, D), q and k convolved."""
        queries_keys, values = self.qkv(x).split([2 * x.shape[-1], x.shape[-1]], dim=-1)
        queries, keys = split_heads(self._convolved(queries_keys, mask), 2, self.heads)
        (values,) = split_heads(values, 1, self.heads)
        return queries, keys, values

    def _convolved(self, features: Tensor, mask: Tensor | None) -> Tensor:
        prefix, rest = features[:, : self.prefix_tokens], features[:, self.prefix_tokens :]
        if not rest.shape[1]:
            return features
        if mask is not None:
            rest = rest.masked_fill(~mask[:, self.prefix_tokens :, None], 0.0)
        filled = pad(rest, (0, 0, self.before, len(self.kernel) - 1 - self.before))
        kernel = self.kernel.to(features.dtype)[None, None, :, None]  # (1, 1, s, 1)
        return torch.cat([prefix, conv2d(filled[:, None], kernel)[:, 0]], dim=1)
