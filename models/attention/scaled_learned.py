"""Scaled Attention with a learned scaling matrix S: output = proj(A (I - S) V).

Teo and Nguyen, NeurIPS 2024 (`rpc.py`), section 4.3, "Scaled Attention S": one S per layer and head.

    A = softmax(Q K^T / sqrt(D)),    output = proj(A (V - S V))    with S learned, (N, N), from 0
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Unpack

import torch
from annotated_types import Interval
from torch import Tensor, nn

from assay.models.attention import rpc
from assay.models.layers.attention.dot_product import DotProductAttention
from assay.models.layers.checks import at_least
from assay.models.layers.heads import CausalParameters

__all__ = ["LearnedScaledAttention"]

OFFERS = ("softmax",)
# S is a weight of this mechanism alone, so no layout is stated.
FACTS = {"causal_form": True, "cost": "quadratic"}
PAPER = rpc.PAPER
RULES = (
    (
        "params.patches == (model.image_size // model.patch_size) * (model.image_size // model.patch_size)",
        "patches must be the model's number of patches, (image_size / patch_size)^2",
    ),
)


class LearnedScaledAttention(DotProductAttention):
    """Softmax attention with values that lose a learned combination of all values.

    `s` is (H, N, N): 24 % more parameters in ViT-tiny at 224 pixels. It belongs to places in the sequence, so
    weights for an image size do not fit another.

    Args:
        patches: number of patch tokens; a shorter sequence uses the first rows and columns of `s`.
        prefix_tokens: tokens before the patches; N is their sum with the patches.
        causal: each token attends to itself and to those before it, and S counts below its diagonal alone.
        dropout: share of A's weights that is dropped in training, in [0, 1); S keeps all of its own.
    """

    name: ClassVar[str] = "scaled_learned"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        patches: Annotated[int, Interval(ge=1, le=4096)] = 196,
        **shared: Unpack[CausalParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        at_least("patches", patches, 1)
        self.tokens = self.prefix_tokens + patches
        self.s = nn.Parameter(torch.zeros(heads, self.tokens, self.tokens))

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the softmax, each (B, H, N, D); v is (I - S) V.

        Raises:
            ValueError: the sequence is longer than N.
        """
        length = x.shape[1]
        if length > self.tokens:
            raise ValueError(f"this attention has S for {self.tokens} tokens: got a sequence of {length}")
        queries, keys, values = self.project(x)
        present = values if mask is None else values.masked_fill(~mask[:, None, :, None], 0.0)
        scaling = self.s[:, :length, :length]
        return queries, keys, values - (scaling.tril() if self.causal else scaling) @ present
