"""Modified Nystrom method on the raw scores of softmax attention, for analyses.

Chen et al., NeurIPS 2021 (`skyformer.py`), equations 4 to 6 with the softmax kernel, section 4.5 and figure 1
(where it is labelled "Skyformer"). X_S has L rows, the landmarks, of [q; k] D^-1/4:

    S(x, y) = exp(x . y),    M = S(X_S, X_S) + gamma I,    d_i = sum_j M_ij
    A~ = S(q, X_S) d^-1/2 W d^-1/2 S(X_S, k),    W ~ (d^-1/2 M d^-1/2)^-1 by products
    output = proj(diag(A~ 1)^-1 A~ v)

The authors advise against training with it: gradients explode, since M has the condition of the scores.

Deviations: exponentials are of differences of logarithms, so that none overflows; row sums of A~ below 1e-12
of the largest weight of their row are replaced by this bound; landmarks as in `skyformer`. Dropout acts on
the output before its projection.

L = landmarks.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from assay.models.attention import kernelized
from assay.models.layers.attention.nystrom import Halves, Inverse, LandmarkAttention, iterative_inverse
from assay.models.layers.attention.projected_attention import without_padding

__all__ = ["NystromScoresAttention"]

FACTS = {
    "layout": "qkv",
    "cost": "linear",
    "analysis_only": "the gradients of its inverse explode (Chen et al., NeurIPS 2021, section 4.5)",
}
PAPER = kernelized.PAPER

MIN_ROW_SUM = 1e-12


class NystromScoresAttention(LandmarkAttention):
    """Softmax attention with its scores approximated from landmarks; for analyses, not for training.

    Args:
        gamma: what is added to the diagonal of the landmarks' scores.
        dropout: rate of dropout of the output before its projection, in [0, 1).
    """

    name: ClassVar[str] = "nystrom_scores"
    permutation_equivariant: ClassVar[bool] = False

    def approximate(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, halves: Halves
    ) -> Tensor:
        """The approximation of softmax attention, (B, H, N, D); see `LandmarkAttention.approximate`."""
        return approximated(queries, keys, values, mask, halves, self.inverse)


def approximated(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, halves: Halves, inverse: Inverse
) -> Tensor:
    """diag(A~ 1)^-1 A~ v with given landmarks: (B, H, N, D), as queries, keys and values, without any scale.

    `mask` is boolean (B, N), true for tokens that take part; None = all.
    """
    scale = queries.shape[-1] ** -0.25
    x, y = (without_padding(part, mask) * scale for part in (queries, keys))
    landmarks, used = halves.of(x, y)
    log_matrix = _regularized(landmarks @ landmarks.mT, used, inverse.gamma)
    half = log_matrix.logsumexp(dim=-1) / 2  # (B, H, L), log d^1/2
    balanced = (log_matrix - half[..., None] - half[..., None, :]).exp()
    pairs = used[..., None] & used[..., None, :]
    inverted = iterative_inverse(balanced.where(pairs, 0.0), inverse.iterations, inverse.normaliser)
    of_rows = (x @ landmarks.mT - half[..., None, :]).masked_fill(~used[..., None, :], -math.inf)
    left = (of_rows - of_rows.detach().amax(dim=-1, keepdim=True)).exp()  # (B, H, N, L)
    of_columns = (landmarks @ y.mT - half[..., None]).masked_fill(~used[..., None], -math.inf)
    if mask is not None:
        of_columns = of_columns.masked_fill(~mask[:, None, None, :], -math.inf)
    right = (of_columns - of_columns.detach().amax(dim=(-2, -1), keepdim=True)).exp()  # (B, H, L, N)
    sums = inverted @ right.sum(dim=-1, keepdim=True)  # (B, H, L, 1)
    row_sums = left @ sums
    small = row_sums.abs() < MIN_ROW_SUM
    mixed: Tensor = left @ (inverted @ (right @ values)) / row_sums.masked_fill(small, MIN_ROW_SUM)
    return mixed


def _regularized(scores: Tensor, used: Tensor, gamma: float) -> Tensor:
    """log(exp(scores) + gamma I), (B, H, L, L); landmarks that are not used have the identity."""
    diagonal = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    log_gamma = math.log(gamma) if gamma > 0 else -math.inf
    raised = torch.logaddexp(scores, torch.full_like(scores, log_gamma)) if gamma > 0 else scores
    known = torch.where(diagonal, raised, scores)
    pairs = used[..., None] & used[..., None, :]
    return known.masked_fill(~pairs, -math.inf).masked_fill(diagonal & ~used[..., None], 0.0)
