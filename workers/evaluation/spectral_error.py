"""How far approximations of attention are from it, in the spectral norm, against their number of features.

Chen et al., "Skyformer: Remodel self-attention with Gaussian kernel and Nystrom method", NeurIPS 2021,
sections 3.3 and 4.5, figure 1. Of one head, with q, k, v (N, D) of the model's own layers:

    error(d) = |out - out~_d|_2,    relative error(d) = error(d) / |out|_2        (largest singular values)

    target softmax      out = softmax(q k^T / sqrt(D)) v;  out~ by `nystrom_scores` (figure 1 calls it
                        "Skyformer"), `nystromformer`, `linformer`, `performer`
    target kernelized   out = G(q, k) v;  out~ by `skyformer`

d is the number of landmarks, segments, combinations or random features. The paper plots a norm without saying
over which heads, and whether it is divided; here both are means over heads. Linformer's E is as it is drawn,
normal with standard deviation 0.02, and FAVOR+ has no epsilon: nothing is trained for these approximations.
E, landmarks and features depend on the job's seed alone.

All tokens attend to all others, as in the paper's model, also with q, k, v of a causal model: the
approximations but Performer have no causal form. Windows of a language model have `length` words.

B = batch, H = heads, N = tokens, D = features of a head, L = layers, F = numbers of features, n = examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import MaxLen, MinLen
from torch import Tensor

from assay.models.attention.kernelized import PAPER as SKYFORMER
from assay.models.attention.kernelized import kernelized
from assay.models.attention.linformer import INITIAL_STD
from assay.models.attention.nystrom_scores import approximated
from assay.models.attention.nystromformer import nystrom
from assay.models.attention.performer import orthogonal_features
from assay.models.attention.skyformer import sketched
from assay.models.layers.attention.nystrom import Gamma, Inverse, Iterations, draw_halves
from assay.models.layers.attention.probe import QueriesKeysValues
from assay.models.layers.heads import attend
from assay.models.layers.parameters import Layers, LayersLookedAt
from assay.workers.evaluation.engine.analysis import Measured, of_one_pass
from assay.workers.evaluation.engine.attention_layers import (
    LAYER_RULES,
    LAYER_TASKS,
    WindowLength,
    look_at_layers,
)
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["spectral_error"]

TASKS = LAYER_TASKS
TABLE = "spectral_error"
NEEDS = ("softmax",)
RULES = LAYER_RULES
PAPER = SKYFORMER
# One pass of the model; the rest, in float64, is planned as two more for each number of features.
PASSES = ("1 + 2 * len(params.features)", "0")

Count = Literal[4, 8, 16, 32, 64, 128, 256, 512, 1024]


def spectral_error(
    *,
    features: Annotated[list[Count], MinLen(1), MaxLen(9)] = [16, 32, 64, 128, 256],  # noqa: B006
    length: WindowLength = 512,
    gamma: Gamma = 0.1,
    iterations: Iterations = 6,
    layers: LayersLookedAt = "all",
) -> Evaluation:
    """Spectral-norm error of approximate attention against its number of features, per layer.

    Args:
        features: the numbers of features d, of each method.
        gamma: of `skyformer` and `nystrom_scores`.
        iterations: steps of the inverse of those and of `nystromformer`.
    """
    return _SpectralError(tuple(features), length, gamma, iterations, layers)


@dataclass(frozen=True)
class _SpectralError:
    features: tuple[int, ...]
    length: int
    gamma: float
    iterations: int
    layers: Layers

    def measure(self, shard: Shard) -> Measured:
        """One row per example; the columns of `errors`, (n, L F), and `tokens`, (n,)."""
        values, facts = look_at_layers(self._looking(shard.seed), self.layers, shard, length=self.length)
        tokens = values.pop("tokens")[:, 0]  # the same in all layers
        flat = {"tokens": tokens} | {name: part.flatten(1) for name, part in values.items()}
        return of_one_pass(shard.ids, flat, facts)

    def _looking(self, seed: int) -> Callable[[int, QueriesKeysValues, Sequence[str]], dict[str, Tensor]]:
        def look(number: int, layer: QueriesKeysValues, ids: Sequence[str]) -> dict[str, Tensor]:
            del number
            found = []
            for row in range(len(ids)):
                kept = slice(None) if layer.mask is None else layer.mask[row]
                q, k, v = (part[row : row + 1, :, kept] for part in layer[:3])  # (1, H, n, D)
                found.append(self._errors(q, k, v, seed))
            return {name: torch.stack([one[name] for one in found]) for name in found[0]}

        return look

    def _errors(self, q: Tensor, k: Tensor, v: Tensor, seed: int) -> dict[str, Tensor]:
        each = [
            errors(q, k, v, count, gamma=self.gamma, iterations=self.iterations, seed=seed)
            for count in self.features
        ]
        found = {name: torch.stack([one[name] for one in each]) for name in each[0]}  # (F,)
        return found | {"tokens": torch.tensor(q.shape[2], dtype=torch.int64)}


def errors(
    q: Tensor, k: Tensor, v: Tensor, count: int, *, gamma: float, iterations: int, seed: int
) -> dict[str, Tensor]:
    """Errors of every method with `count` features, of q, k and v (1, H, N, D), float64.

    `gamma` is the modified Nystrom method's; `iterations` compute its inverse; the seed is of landmarks,
    projections and random features. `METHOD_error` and `METHOD_relative_error` are means over heads, scalars.
    """
    softmax, scale = attend(q, k, v, None, 0.0), q.shape[-1] ** -0.25
    halves = draw_halves(q, None, count, draw="fixed", seed=seed, training=False)
    inverse = Inverse(gamma, iterations)
    pairs = {
        "nystrom_scores": (softmax, approximated(q, k, v, None, halves, inverse)),
        "nystromformer": (softmax, nystrom(q, k, v, landmarks=count, iterations=iterations)),
        "linformer": (softmax, linformer(q, k, v, count, seed)),
        "performer": (softmax, performer(q, k, v, count, seed)),
        "skyformer": (kernelized(q, k, v), sketched(q * scale, k * scale, v, halves, inverse)),
    }
    found = {}
    for method, (exact, approximation) in pairs.items():
        error = torch.linalg.matrix_norm(exact - approximation, 2)  # (1, H)
        found[f"{method}_error"] = error.mean()
        found[f"{method}_relative_error"] = (error / torch.linalg.matrix_norm(exact, 2)).mean()
    return found


def linformer(q: Tensor, k: Tensor, v: Tensor, count: int, seed: int) -> Tensor:
    """Attention to `count` random combinations of the tokens, as `linformer` begins; (1, H, N, D)."""
    generator = torch.Generator().manual_seed(seed)
    combine = INITIAL_STD * torch.randn(
        q.shape[1], count, q.shape[2], generator=generator, dtype=torch.float64
    )
    combine = combine.to(q)
    return attend(q, combine @ k, combine @ v, None, 0.0)


def performer(q: Tensor, k: Tensor, v: Tensor, count: int, seed: int) -> Tensor:
    """Softmax attention estimated with `count` positive orthogonal random features; (1, H, N, D).

    Largest exponents are subtracted, of each query and of all keys of a head: they cancel in the quotient.
    """
    vectors = orthogonal_features(count, q.shape[-1], torch.Generator().manual_seed(seed)).to(q)
    x, y = (part * q.shape[-1] ** -0.25 for part in (q, k))
    of_q, of_k = (part @ vectors.T - part.square().sum(dim=-1, keepdim=True) / 2 for part in (x, y))
    left = (of_q - of_q.amax(dim=-1, keepdim=True)).exp()
    right = (of_k - of_k.amax(dim=(-2, -1), keepdim=True)).exp().mT  # (1, H, d, N)
    estimated: Tensor = (left @ (right @ v)) / (left @ right.sum(dim=-1, keepdim=True))
    return estimated
