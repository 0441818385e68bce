"""Scaled Attention with the exact scaling matrix S of the keys: output = proj(A (I - S) V).

Teo and Nguyen, NeurIPS 2024 (`rpc.py`), Remark 3, equation 12 and appendix E.1:

    A = softmax(Q K^T / sqrt(D))
    S(j, j') = g(k_j') / (N g(k_j)),    g(k) = sum_j exp(k . k_j / sqrt(D))

S is (1/N) A_sym / A_sym^T elementwise, A_sym = softmax(K K^T / sqrt(D)): the numerators of A_sym cancel. It
has rank one and S^2 = S, so (I - S) V costs as much as a mean over the tokens:

    ((I - S) V)_j = v_j - exp(l_max - l_j) mean_j'(exp(l_j' - l_max) v_j'),    l = log g

No code was released ("numerical errors that are difficult to handle"): the ratio of two g overflows for large
keys. Deviation: l is clamped to at least l_max - log_range. With Theorem 1 and equation 8 as printed, which
divide the subtracted a_dj' by its own g(k_j'), S would be the plain mean; their derivation and Remark 3 give
the S above.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Unpack

import torch
from annotated_types import Interval
from torch import Tensor

from assay.models.attention import rpc
from assay.models.layers.attention.dot_product import DotProductAttention
from assay.models.layers.heads import HeadParameters

__all__ = ["ExactScaledAttention"]

OFFERS = ("softmax",)
FACTS = {"cost": "quadratic"}
PAPER = rpc.PAPER

LogRange = Annotated[float, Interval(ge=0, le=80)]  # e^88 is float32's end


def log_normalizers(keys: Tensor, mask: Tensor | None = None) -> Tensor:
    """log g(k_j) of each token: (B, H, N, D) to (B, H, N, 1), in float32 at least, also under autocast.

    Masked tokens (false in `mask`, (B, N)) are excluded from the sum.
    """
    keys = keys.to(torch.promote_types(keys.dtype, torch.float32))
    with torch.autocast(keys.device.type, enabled=False):
        scores = keys @ keys.transpose(-2, -1) / math.sqrt(keys.shape[-1])  # (B, H, N, N)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None, :], -math.inf)
    return scores.logsumexp(dim=-1, keepdim=True)


def scaled_mean(values: Tensor, log_g: Tensor, log_range: float, mask: Tensor | None = None) -> Tensor:
    """S V, with S(j, j') = g(k_j') / (N g(k_j)), of V (B, H, N, D) and log g(k_j), (B, H, N, 1).

    log g is clamped to at least the sequence's max minus `log_range`. `mask` is boolean (B, N), true for the
    tokens that take part; None = all. (B, H, N, D), in the wider type of both.
    """
    if mask is None:
        largest = log_g.amax(dim=-2, keepdim=True)  # (B, H, 1, 1)
        mean_weights = (torch.maximum(log_g, largest - log_range) - largest).exp() / log_g.shape[-2]
    else:
        present = mask[:, None, :, None]  # (B, 1, N, 1)
        counted = log_g.masked_fill(~present, -math.inf)
        largest = counted.amax(dim=-2, keepdim=True)
        mean_weights = (torch.maximum(counted, largest - log_range) - largest).exp()
        mean_weights = mean_weights.masked_fill(~present, 0.0) / present.sum(dim=-2, keepdim=True)
    mean = (mean_weights * values).sum(dim=-2, keepdim=True)  # (B, H, 1, D)
    return (largest - torch.maximum(log_g, largest - log_range)).exp() * mean


class ExactScaledAttention(DotProductAttention):
    """Softmax attention with values that lose their scaled mean, as kernel principal components have it.

    It stores N x N matrices.

    Args:
        log_range: the largest log g(k_j') - log g(k_j) that counts; a ratio beyond it counts as e^log_range.
        dropout: share of A's weights that is dropped in training, in [0, 1); S keeps all of its own.
    """

    name: ClassVar[str] = "scaled_exact"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(
        self, dim: int, heads: int, *, log_range: LogRange = 30.0, **shared: Unpack[HeadParameters]
    ) -> None:
        super().__init__(dim, heads, **shared)
        if not 0 <= log_range <= 80:
            raise ValueError(f"log_range must be from 0 to 80: got {log_range}")
        self.log_range = log_range

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the softmax, each (B, H, N, D); v is (I - S) V."""
        queries, keys, values = self.project(x)
        mean = scaled_mean(values, log_normalizers(keys, mask), self.log_range, mask)
        return queries, keys, (values - mean).to(values.dtype)
