"""Whether the heads of a layer attend to different tokens.

Nguyen et al., "A Primal-Dual Framework for Transformers and Neural Networks", ICLR 2023, table 4: the mean L2
distance between heads, averaged over layers, and its standard deviation. No code was released, and how a
distance is normalised is not stated. Of two heads with the matrices A and A' of N x N weights:

    ||A - A'||_F                         normalisation = "matrix": of the whole matrices, at most sqrt(2 N)
    mean_i ||A_i - A'_i||_2              normalisation = "row": of each token's weights, at most sqrt(2)

The printed values, 2.01 to 3.81, exceed what a mean over rows can be, so the first is the default. Distances
of the whole matrix grow with the length of the sequence: compare models on the same data and size.

B = batch, H = heads, N = tokens (CLS included), L = layers, n = examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.models.layers.parameters import Layers, LayersLookedAt
from assay.workers.evaluation.engine.analysis import Measured, of_one_pass
from assay.workers.evaluation.engine.attention_layers import (
    LAYER_RULES,
    LAYER_TASKS,
    WindowLength,
    look_at_matrices,
)
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["head_distance"]

TASKS = LAYER_TASKS
TABLE = "head_distance"
NEEDS = ("softmax or attention_matrix",)
RULES = (*LAYER_RULES, ("model.heads > 1", "one head has no distance to others: heads must be at least 2"))
PAPER = "Nguyen et al., A Primal-Dual Framework for Transformers and Neural Networks, ICLR 2023, table 4"
# One pass of the model; the distances, in float64, are planned as two more. Rows report the real passes.
PASSES = ("3", "0")

Normalisation = Literal["matrix", "row"]


def head_distance(
    *, normalisation: Normalisation = "matrix", layers: LayersLookedAt = "all", length: WindowLength = 256
) -> Evaluation:
    """L2 distance between the attention of a layer's heads, per layer.

    Args:
        normalisation: the distance of whole matrices ("matrix"), or the mean over their rows ("row").
    """
    return _HeadDistance(normalisation, layers, length)


@dataclass(frozen=True)
class _HeadDistance:
    normalisation: Normalisation
    layers: Layers
    length: int

    def measure(self, shard: Shard) -> Measured:
        """One row per example; the columns of `distances`, each (n, L)."""

        def look(number: int, matrix: Tensor) -> dict[str, Tensor]:
            del number
            return distances(matrix, normalisation=self.normalisation)

        values, facts = look_at_matrices(look, self.layers, shard, length=self.length, kernels=False)
        return of_one_pass(shard.ids, values, facts)


def distances(matrix: Tensor, *, normalisation: Normalisation) -> dict[str, Tensor]:
    """Distances between heads, of their attention (B, H, N, N), float64.

    `distance` and `squared_distance` are means over the H (H - 1) / 2 pairs, (B,); NaN with one head.
    """
    pairs = torch.combinations(torch.arange(matrix.shape[1]), 2).tolist()
    found = [_distance(matrix[:, one] - matrix[:, other], normalisation) for one, other in pairs]
    each = torch.stack(found, dim=1) if found else matrix.new_full((matrix.shape[0], 1), torch.nan)
    return {"distance": each.mean(dim=1), "squared_distance": each.square().mean(dim=1)}


def _distance(difference: Tensor, normalisation: Normalisation) -> Tensor:
    if normalisation == "row":
        return difference.square().sum(dim=-1).sqrt().mean(dim=-1)
    return difference.square().sum(dim=(-2, -1)).sqrt()
