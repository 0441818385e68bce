"""Softmax attention of standardised queries and keys: A = softmax(q' k'^T / sqrt(D)), output = proj(A v).

Teo and Nguyen, NeurIPS 2024 (`rpc.py`), section 2.2.1: the ViT-tiny of the projection loss. The text says
only ViT-tiny; the released code standardises each q and k over its D features (unbiased, nothing learned), as
here.

    x' = (x - mean(x)) / std(x)  over the D features of each q and k
    A  = softmax(q' k'^T / sqrt(D)),    output = proj(A v)
"""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor

from assay.models.attention import rpc
from assay.models.layers.attention.dot_product import DotProductAttention
from assay.models.layers.heads import CausalParameters

__all__ = ["StandardizedSoftmaxAttention"]

OFFERS = ("softmax",)
FACTS = {"causal_form": True, "layout": "qkv", "cost": "quadratic"}
PAPER = rpc.PAPER
RULES = (("model.width > model.heads", "width must be more than heads: one feature cannot be standardised"),)

MIN_VARIANCE = 1e-24  # results and gradients stay finite where all features of a token are equal


def standardize(features: Tensor) -> Tensor:
    """Subtract the mean over the last axis and divide by the unbiased standard deviation.

    In float32 at least; shape and type stay.
    """
    wide = features.to(torch.promote_types(features.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, dim=-1, keepdim=True)
    return ((wide - mean) / variance.clamp(min=MIN_VARIANCE).sqrt()).to(features.dtype)


class StandardizedSoftmaxAttention(DotProductAttention):
    """Softmax attention with queries and keys of mean 0 and standard deviation 1, token by token.

    Args:
        heads: number of heads H; must divide `dim` and be less than it.
    """

    name: ClassVar[str] = "softmax_standardized"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, **shared: Unpack[CausalParameters]) -> None:
        super().__init__(dim, heads, **shared)
        if dim == heads:
            raise ValueError(f"width must be more than heads: one feature cannot be standardised, got {dim}")

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the softmax, each (B, H, N, D), q and k standardised."""
        del mask
        queries, keys, values = self.project(x)
        return standardize(queries), standardize(keys), values
