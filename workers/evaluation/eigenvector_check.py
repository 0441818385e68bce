"""Whether value matrices hold eigenvectors of the centred Gram matrix of the keys, with controls.

Teo and Nguyen, "Unveiling the hidden structure of self-attention via kernel principal component analysis",
NeurIPS 2024, sections 2.1 (Theorem 1, equation 11, remark 1) and 2.2.2. Of one head:

    g(x) = sum_j exp(x . k_j / sqrt(D)),    K(i, j) = exp(k_i . k_j / sqrt(D)) / (g(k_i) g(k_j))
    K~ = (I - 1_N) K (I - 1_N),             1_N = the N x N matrix of 1/N
    a_d = (I - 1_N)^+ G^-1 V[:, d],         G = diag(1 / g(k_j))
    gamma_d = K~ a_d / (N a_d)              elementwise; constant in i iff a_d is an eigenvector

No code was released. Deviations: the paper writes an inverse of I - 1_N, which has none; it is a projection,
and so its own pseudo-inverse. V = G (I - 1_N) A can be solved for A only where the columns of G^-1 V sum to
0; how far they are from it is reported (`offset`). Elements of a_d below 1e-12 of its largest one are left
out of gamma_d and counted. gamma_d does not change with the length of a_d, so g is taken relative to its
largest value, and K~ to its largest element.

The differences |gamma_i - gamma_j| are small wherever K~ is small, for any V: each K(i, i) is at most
exp(-|k_i|^2 / sqrt(D)), so that all eigenvalues of K~ / N together are at most 1 (`trace`). Hence the
controls: the same keys with random values, and with the model's values in another order of the tokens. And
hence the cosine of a_d and K~ a_d, which is 1 for an eigenvector, and does not change with the size of K~.

B = batch, H = heads, N = tokens (CLS included), D = features of a head, L = layers, n = examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from assay.attacks.randomness import Randomness
from assay.models.attention import rpc
from assay.models.layers.attention.probe import QueriesKeysValues
from assay.models.layers.parameters import Layers, LayersLookedAt
from assay.workers.evaluation.engine.analysis import Measured, of_one_pass
from assay.workers.evaluation.engine.attention_layers import LAYER_RULES, look_at_layers
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["eigenvector_check"]

TASKS = ("classification", "segmentation")
TABLE = "eigenvector_check"
NEEDS = ("softmax",)
RULES = LAYER_RULES
PAPER = rpc.PAPER
# One pass of the model; the rest, in float64, is planned as nine more. Rows report the real passes.
PASSES = ("10", "0")

MIN_SHARE = 1e-12
COSINE_BINS = 20  # of [0, 1]
SPREAD_BINS = 48  # of these powers of ten; the first and the last bin include values beyond
POWERS = (-20.0, 4.0)


def eigenvector_check(*, layers: LayersLookedAt = "all") -> Evaluation:
    """Whether values hold eigenvectors of the keys' Gram matrix, against random and permuted values."""
    return _EigenvectorCheck(layers)


@dataclass(frozen=True)
class _EigenvectorCheck:
    layers: Layers

    def measure(self, shard: Shard) -> Measured:
        """One row per example, with the columns of `check`; columns of controls have their name in front."""
        randomness = Randomness(shard.seed, "eigenvector_check")

        def look(number: int, layer: QueriesKeysValues, names: Sequence[str]) -> dict[str, Tensor]:
            gram = gram_matrix(layer.keys)
            found = {"trace": gram.trace} | check(gram, layer.values)
            for control, values in controls(layer.values, randomness, names, number).items():
                found |= {f"{control}_{name}": part for name, part in check(gram, values).items()}
            return found

        values, facts = look_at_layers(look, self.layers, shard)
        return of_one_pass(shard.ids, _without_layers(values), facts)


class Gram(NamedTuple):
    """The centred Gram matrix of the keys of each head."""

    centred: Tensor  # K~ / e^log_size, (B, H, N, N)
    log_size: Tensor  # (B, H, 1, 1)
    log_g: Tensor  # log g(k_j), (B, H, N, 1)
    trace: Tensor  # tr(K~) / N, the sum of the eigenvalues, mean over heads, (B,)


def gram_matrix(keys: Tensor) -> Gram:
    """K~ of keys (B, H, N, D) in float64."""
    scores = keys @ keys.transpose(-2, -1) / math.sqrt(keys.shape[-1])  # (B, H, N, N)
    log_g = scores.logsumexp(dim=-1, keepdim=True)
    log_kernel = scores - log_g - log_g.transpose(-2, -1)
    log_size = log_kernel.amax(dim=(-2, -1), keepdim=True)
    kernel = (log_kernel - log_size).exp()
    centred = kernel - kernel.mean(dim=-1, keepdim=True)
    centred = centred - centred.mean(dim=-2, keepdim=True)
    trace = centred.diagonal(dim1=-2, dim2=-1).mean(dim=-1) * log_size[..., 0, 0].exp()  # (B, H)
    return Gram(centred, log_size, log_g, trace.mean(dim=-1))


def controls(values: Tensor, randomness: Randomness, ids: Sequence[str], layer: int) -> dict[str, Tensor]:
    """Value matrices (B, H, N, D) independent of the keys, with draws keyed by example and layer.

    `random`: standard normal; `permuted`: the tokens of each head in a random order.
    """
    dtype, device = values.dtype, values.device
    shape = tuple(values.shape[1:])
    random = randomness.normal(ids, shape, step=layer, purpose="random", dtype=dtype, device=device)
    places = randomness.uniform(ids, shape[:2], step=layer, purpose="permuted", dtype=dtype, device=device)
    order = places.argsort(dim=-1)[..., None]  # (B, H, N, 1)
    return {"random": random, "permuted": values.gather(2, order.expand_as(values))}


def check(gram: Gram, values: Tensor) -> dict[str, Tensor]:
    """How near the columns of a value matrix (B, H, N, D), float64, are to eigenvectors of K~ of the keys.

    Means over heads and the columns d, each (B,), where a column counts if a_d and K~ a_d are not 0:
    `difference_mean` and `difference_std`, of |gamma_i - gamma_j| over all pairs i != j; `cosine`, the
    absolute cosine of a_d and K~ a_d; `offset`, |1^T u| / (sqrt(N) |u|) with u = G^-1 V[:, d], 0 where
    equation 11 can be solved, at most 1. Of the constants |mean_i gamma_i|, per head, then mean over heads:
    `largest`, `smallest`, `average`, `middle`. Counts, int64: `skipped` of the `elements` of all a_d were too
    near to 0, `undefined` columns. Histograms over heads and columns: `cosines` (B, 20), and `spreads` of
    log10 difference_mean (B, 48), int64.
    """
    weighted = (gram.log_g - gram.log_g.amax(dim=-2, keepdim=True)).exp() * values  # u, (B, H, N, D)
    axes = weighted - weighted.mean(dim=-2, keepdim=True)  # a
    images = gram.centred @ axes
    lengths, image_lengths = axes.norm(dim=-2), images.norm(dim=-2)  # (B, H, D)
    defined = (lengths > 0) & (image_lengths > 0)
    cosine = (axes * images).sum(dim=-2).abs() / (lengths * image_lengths)
    offset = weighted.sum(dim=-2).abs() / (math.sqrt(values.shape[-2]) * weighted.norm(dim=-2))
    kept = axes.abs() > MIN_SHARE * axes.abs().amax(dim=-2, keepdim=True)
    gamma = (images / axes / values.shape[-2] * gram.log_size.exp()).where(kept, torch.nan)
    spread = pairwise(gamma)
    constants = gamma.nanmean(dim=-2).abs().where(defined, torch.nan)  # (B, H, D)
    known = {"cosine": cosine, "offset": offset, "difference_mean": spread.mean, "difference_std": spread.std}
    return {
        **{name: _over_all(part.where(defined, torch.nan)) for name, part in known.items()},
        "largest": constants.nan_to_num(nan=-math.inf).amax(dim=-1).mean(dim=-1),
        "smallest": constants.nan_to_num(nan=math.inf).amin(dim=-1).mean(dim=-1),
        "average": constants.nanmean(dim=-1).mean(dim=-1),
        "middle": _median(constants).mean(dim=-1),
        "skipped": (~kept).flatten(1).sum(dim=1),
        "elements": torch.full_like(kept[:, 0, 0, 0], kept[0].numel(), dtype=torch.int64),
        "undefined": (~defined).flatten(1).sum(dim=1),
        "cosines": _histogram(cosine, defined, 0.0, 1.0, COSINE_BINS),
        "spreads": _histogram(spread.mean.log10(), defined, *POWERS, SPREAD_BINS),
    }


class Pairwise(NamedTuple):
    """Mean and standard deviation of |x_i - x_j| over all pairs i != j, each (..., D)."""

    mean: Tensor
    std: Tensor


def pairwise(x: Tensor) -> Pairwise:
    """Absolute differences of all pairs along the tokens of (..., N, D); NaN elements are left out.

    In N log N: with x sorted, the sum over pairs i < j is sum_i (2 i - m + 1) x_i for m elements, i from 0;
    and the mean square of the differences is twice the unbiased variance. NaN with fewer than two elements.
    """
    ordered = x.sort(dim=-2).values  # NaN at the end
    known = ~ordered.isnan()
    count = known.sum(dim=-2, keepdim=True).to(x.dtype)  # (..., 1, D)
    place = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)[:, None]
    centred = (ordered - ordered.nanmean(dim=-2, keepdim=True)).where(known, 0.0)
    weights = 2 * place - count + 1
    mean = 2 * (weights * centred).sum(dim=-2) / (count * (count - 1))[..., 0, :]
    square = 2 * centred.square().sum(dim=-2) / (count - 1)[..., 0, :]
    return Pairwise(mean, (square - mean.square()).clamp(min=0.0).sqrt())


def _over_all(of_columns: Tensor) -> Tensor:
    return of_columns.flatten(1).nanmean(dim=1)


def _median(of_columns: Tensor) -> Tensor:
    """The median over the columns of (..., D), the mean of the middle two, without those that are NaN."""
    ordered = of_columns.sort(dim=-1).values
    count = (~ordered.isnan()).sum(dim=-1, keepdim=True)
    low, high = ((count - 1).clamp(min=0) // 2, count // 2)
    middle = ordered.gather(-1, torch.cat([low, high.clamp(max=ordered.shape[-1] - 1)], dim=-1))
    return middle.mean(dim=-1)


def _histogram(values: Tensor, defined: Tensor, low: float, high: float, bins: int) -> Tensor:
    """How many of the defined values (B, H, D) are in each of the equal bins, (B, bins), int64."""
    share = (values.nan_to_num(nan=low, neginf=low, posinf=high) - low) / (high - low)
    place = (share * bins).floor().clamp(0, bins - 1).where(defined, -1.0).flatten(1)
    return (place[..., None] == torch.arange(bins, device=place.device)).sum(dim=1)


def _without_layers(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Histograms and counts over all layers, (n, ...); values of controls as a mean over layers."""
    kept = {}
    for name, part in values.items():
        if not part.is_floating_point():
            kept[name] = part.sum(dim=1)
        else:
            control = name.startswith(("random_", "permuted_"))
            kept[name] = part.mean(dim=1) if control else part
    return kept
