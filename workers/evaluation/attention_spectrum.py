"""Singular values of attention matrices, layer by layer: how much of a matrix its largest ones explain.

Chen et al., "Primal-Attention: Self-attention through Asymmetric Kernel SVD in Primal Representation",
NeurIPS 2023, figure 1: cumulative explained variance of the singular values. Of one head, with the singular
values s_1 >= s_2 >= ... of its N x N matrix:

    explained(r) = sum_{i<=r} s_i^2 / sum_i s_i^2                       of = "squares": variance
    explained(r) = sum_{i<=r} s_i / sum_i s_i                           of = "values"
    effective rank = exp(-sum_i p_i log p_i),    p_i = s_i / sum_j s_j  Roy and Vetterli, EUSIPCO 2007

The text does not say which of the two sums is drawn; variance is of squares, the default. The matrix is A =
softmax(q k^T / sqrt(D)), or what a mechanism says that its attention matrix is. Primal-Attention has none: of
it, the kernel matrix K_ij = <f(X) phi(q_i), f(X) phi(k_j)> of Theorem 3.2 is taken, whose rank is at most D.
No code of the figure was released.

The matrix of a causal layer has zeros for later tokens. Padding is left out; of a pair of sequences the first
is looked at.

B = batch, H = heads, N = tokens (CLS included), L = layers, n = examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.models.attention import primal
from assay.models.layers.heads import running_sum
from assay.models.layers.parameters import Layers, LayersLookedAt
from assay.workers.evaluation.engine.analysis import Measured, of_one_pass
from assay.workers.evaluation.engine.attention_layers import (
    LAYER_RULES,
    LAYER_TASKS,
    WindowLength,
    look_at_matrices,
)
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["attention_spectrum"]

TASKS = LAYER_TASKS
TABLE = "attention_spectrum"
NEEDS = ("softmax or attention_matrix or kernel_matrix",)
RULES = LAYER_RULES
PAPER = primal.PAPER
# One pass of the model; the singular values, in float64, are planned as twenty more. Rows report real passes.
PASSES = ("21", "0")

Of = Literal["squares", "values"]

POINTS = 32  # of the curve: shares of the N ranks
MOST = 0.9
SLACK = 1e-12  # of rounding, where MOST is reached exactly


def attention_spectrum(
    *, of: Of = "squares", layers: LayersLookedAt = "all", length: WindowLength = 256
) -> Evaluation:
    """Singular values of attention matrices per layer: explained variance, and how many explain 90 %.

    Args:
        of: whether squared singular values are summed ("squares"), or the values ("values").
    """
    return _AttentionSpectrum(of, layers, length)


@dataclass(frozen=True)
class _AttentionSpectrum:
    of: Of
    layers: Layers
    length: int

    def measure(self, shard: Shard) -> Measured:
        """One row per example; the columns of `spectrum`, each (n, L), and `curve` (n, 33 L)."""

        def look(number: int, matrix: Tensor) -> dict[str, Tensor]:
            del number
            return spectrum(matrix, of=self.of)

        values, facts = look_at_matrices(look, self.layers, shard, length=self.length, kernels=True)
        values["curve"] = values["curve"].flatten(1)  # a list of numbers in a cell of the CSV
        return of_one_pass(shard.ids, values, facts)


def spectrum(matrix: Tensor, *, of: Of) -> dict[str, Tensor]:
    """Explained shares of the singular values of matrices (B, H, N, N), float64, means over heads.

    `curve`: share that the first ceil(p N / 32) values explain, p from 0 to 32, (B, 33); and, (B,) each,
    `largest`: share of the largest one; `rank_90`: how many explain 90 %; `effective_rank`: from 1 to N;
    `tokens`: N, int64. All are NaN where the matrix is not finite or 0.
    """
    count = matrix.shape[-1]
    finite = torch.isfinite(matrix).all(dim=-1).all(dim=-1)  # (B, H)
    singular = torch.linalg.svdvals(matrix.where(finite[..., None, None], 0.0))  # (B, H, N), falling
    summed = singular.square() if of == "squares" else singular
    explained = running_sum(summed[..., None])[..., 0] / summed.sum(
        dim=-1, keepdim=True
    )  # (B, H, N); NaN of 0
    shares = singular / singular.sum(dim=-1, keepdim=True)
    ends = (torch.arange(POINTS + 1, device=matrix.device) * count + POINTS - 1) // POINTS  # ceil(p N / 32)
    whole = torch.cat([0 * explained[..., :1], explained], dim=-1)  # from none of them on
    known = (explained < MOST - SLACK).sum(dim=-1) + 1 + 0 * explained[..., 0]
    return {
        "curve": whole[..., ends].mean(dim=1),
        "largest": explained[..., 0].mean(dim=1),
        "rank_90": known.mean(dim=1),
        "effective_rank": torch.special.entr(shares).sum(dim=-1).exp().mean(dim=1),
        "tokens": torch.full_like(known[:, 0], count, dtype=torch.int64),
    }
