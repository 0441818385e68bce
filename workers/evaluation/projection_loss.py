"""How far queries are from their projections on the principal axes that attention gives out.

Teo and Nguyen, "Unveiling the hidden structure of self-attention via kernel principal component analysis",
NeurIPS 2024, section 2.2.1, equation 13, and appendix C. Of one head, with A = softmax(q k^T / sqrt(D)):

    J_proj = (1/N) sum_i (||phi(q_i)||^2 - ||h_i||^2),    h_i = sum_j A_ij v_j
    ||phi(q_i)||^2 = exp(q_i . q_i / sqrt(D)) / (sum_j exp(q_i . k_j / sqrt(D)))^2           form "paper"
    ||phi(q_i)||^2 = exp(q_i . q_i) A_i1^2 / exp(2 q_i . k_1)                                form "released"

The released code takes the sum over j from the first column of A, as appendix C does, and leaves out 1 /
sqrt(D) everywhere but in A; so its value depends on which token is the first. It logs the logarithm of the
mean over batch, heads and tokens of each layer, which is NaN where the mean is negative, and averages the
logarithms over layers. The mean can be negative: the identity needs orthonormal axes u_d, which nothing
enforces. Its model standardises q and k (attention `softmax_standardized`); here q and k are what the model's
own softmax gets.

Deviations: the mean is over all examples, not batch by batch, so that batches do not matter; and
||phi||^2 is kept as a logarithm, because exp(q . q) overflows where q is not standardised.

B = batch, H = heads, N = tokens (CLS included), D = features of a head, L = layers, n = examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.models.attention import rpc
from assay.models.layers.attention.probe import QueriesKeysValues
from assay.models.layers.parameters import Layers, LayersLookedAt
from assay.workers.evaluation.engine.analysis import Measured, of_one_pass
from assay.workers.evaluation.engine.attention_layers import LAYER_RULES, look_at_layers
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["projection_loss"]

TASKS = ("classification", "segmentation")
TABLE = "projection_loss"
NEEDS = ("softmax",)
RULES = LAYER_RULES
PAPER = rpc.PAPER
# One pass of the model; the rest, in float64, is planned as two more. Rows report the real passes.
PASSES = ("3", "0")

Form = Literal["released", "paper"]


def projection_loss(*, form: Form = "released", layers: LayersLookedAt = "all") -> Evaluation:
    """Projection loss J_proj of attention as kernel PCA, per layer.

    Args:
        form: "released", the logarithm of the mean as in the authors' code, or "paper", equation 13.
    """
    return _ProjectionLoss(form, layers)


@dataclass(frozen=True)
class _ProjectionLoss:
    form: Form
    layers: Layers

    def measure(self, shard: Shard) -> Measured:
        """One row per example; the columns of `parts`, each (n, L)."""
        values, facts = look_at_layers(self._look, self.layers, shard)
        return of_one_pass(shard.ids, values, facts)

    def _look(self, number: int, layer: QueriesKeysValues, ids: Sequence[str]) -> dict[str, Tensor]:
        del number, ids
        return parts(*layer[:3], form=self.form)


def parts(queries: Tensor, keys: Tensor, values: Tensor, *, form: Form) -> dict[str, Tensor]:
    """Terms of J_proj of a layer, per example, of queries, keys and values (B, H, N, D), float64.

    `log_phi`: logarithm of the mean over heads and tokens of ||phi(q_i)||^2, in this form, (B,); `output`:
    mean over heads and tokens of ||h_i||^2, (B,); `negative`: how many of the `terms`, H N, are negative,
    int64 (B,).
    """
    scale = 1 / math.sqrt(queries.shape[-1])
    scores = queries @ keys.transpose(-2, -1)  # (B, H, N, N), without the scale
    normaliser = (scores * scale).logsumexp(dim=-1)  # (B, H, N)
    attended = (scores * scale - normaliser[..., None]).exp() @ values
    norm = queries.square().sum(dim=-1)  # (B, H, N)
    if form == "paper":
        log_phi = norm * scale - 2 * normaliser
    else:
        first = scores[..., 0]  # q_i . k_1
        log_phi = norm + 2 * (first * scale - normaliser) - 2 * first
    output = attended.square().sum(dim=-1)
    count = log_phi.shape[1] * log_phi.shape[2]
    return {
        "log_phi": log_phi.flatten(1).logsumexp(dim=1) - math.log(count),
        "output": output.flatten(1).mean(dim=1),
        "negative": (log_phi < output.log()).flatten(1).sum(dim=1),
        "terms": torch.full_like(log_phi[:, 0, 0], count, dtype=torch.int64),
    }
