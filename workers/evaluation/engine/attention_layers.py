"""Runs a model over examples and inspects q, k and v of its layers, or their attention matrices.

B = batch, N = tokens, H = heads, D = features of a head, L = chosen layers, n = examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from assay.attacks.kernel import frozen
from assay.models.layers.attention_probe import (
    KernelLayer,
    MatrixLayer,
    QueriesKeysValues,
    matrix_layers,
    observed,
    queries_keys_values,
    softmax_layers,
)
from assay.models.layers.parameters import Layers, layer_rule, select_layers
from assay.workers.evaluation.engine.loader import Images, Loader
from assay.workers.evaluation.engine.shard import Shard

# `model.depth` is that of the encoder (`service/submission/compatibility.py`).
LAYER_RULES = (
    (
        layer_rule("layers", "model.depth")[0].replace("model.layers", "params.layers"),
        "layers must be all, first, last, or a list of layers from 0 to depth - 1",
    ),
)

Look = Callable[[int, QueriesKeysValues, Sequence[str]], Mapping[str, Tensor]]
"""From a layer's number, its q, k, v in float64, each (B, H, N, D), and the example ids, to what was measured
of each example, (B, ...)."""


LookAtMatrix = Callable[[int, Tensor], Mapping[str, Tensor]]
"""From a layer's number and its matrix in float64, (B, H, N, N), to measurements, (B, ...) each."""

_Read = Callable[[int, nn.Module, Tensor, Tensor | None, Sequence[str]], Mapping[str, Tensor]]


def look_at_layers(
    look: Look,
    layers: Layers,
    shard: Shard,
    *,
    inputs: Images | None = None,
    run: nn.Module | None = None,
    hidden_tokens: bool = False,
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Measures every chosen layer for every example, independent of batches.

    Args:
        look: Measures a layer.
        layers: Which ones.
        shard: The model and the examples; measurements are computed in float64.
        inputs: The model's input by row; None for the shard's images.
        run: What is run on it, a part of the shard's model; None for all of it.
        hidden_tokens: Whether layers may be causal, and have padding, which `look` is told.

    Returns:
        Measurements by name, (n, L, ...) on the CPU; and facts for the merge: the layers' numbers and a batch
        that had to be reduced.

    Raises:
        ValueError: There are no examples, images are outside [0, 1], or the model has no such layer.
    """

    def read(
        number: int, layer: nn.Module, x: Tensor, mask: Tensor | None, names: Sequence[str]
    ) -> Mapping[str, Tensor]:
        seen = queries_keys_values(layer, x, mask)
        with torch.autocast(x.device.type, enabled=False):
            queries, keys, values = (part.double() for part in seen[:3])
            return look(number, QueriesKeysValues(queries, keys, values, mask), names)

    every = softmax_layers(shard.classifier, causal=hidden_tokens)
    shown = Shown(inputs or shard.images, run or shard.classifier, hidden_tokens)
    return _measured(read, every, layers, shard, shown)


def look_at_matrices(
    look: LookAtMatrix, layers: Layers, shard: Shard, *, kernels: bool
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Measures the attention matrix of every chosen layer, as `look_at_layers`.

    Args:
        look: Measures a matrix.
        layers: Which layers.
        shard: The model and the examples; matrices are computed in float64 of the model's own q and k.
        kernels: Whether a layer in the primal form of a kernel matrix counts, with that matrix.

    Returns:
        As `look_at_layers`.

    Raises:
        ValueError: As `look_at_layers`.
    """

    def read(
        number: int, layer: nn.Module, x: Tensor, mask: Tensor | None, names: Sequence[str]
    ) -> Mapping[str, Tensor]:
        del mask, names
        return look(number, _matrix(layer, x))

    every = matrix_layers(shard.classifier, kernels=kernels)
    return _measured(read, every, layers, shard, Shown(shard.images, shard.classifier, padding=False))


def _matrix(layer: nn.Module, x: Tensor) -> Tensor:
    """The attention or kernel matrix of each head, (B, H, N, N), float64."""
    if isinstance(layer, MatrixLayer):
        return layer.attention_matrix(x).double()
    if isinstance(layer, KernelLayer):
        left, right = layer.kernel_factors(x)
        with torch.autocast(x.device.type, enabled=False):
            return left.double() @ right.double().transpose(-2, -1)
    seen = queries_keys_values(layer, x)
    with torch.autocast(x.device.type, enabled=False):
        queries, keys = seen.queries.double(), seen.keys.double()
        return (queries @ keys.transpose(-2, -1) / math.sqrt(keys.shape[-1])).softmax(dim=-1)


class Shown(NamedTuple):
    """What is run: the input by row, the model or a part of it, and whether the input may have padding."""

    inputs: Images
    run: nn.Module
    padding: bool


def _measured(
    read: _Read, every: Sequence[nn.Module], layers: Layers, shard: Shard, shown: Shown
) -> tuple[dict[str, Tensor], dict[str, object]]:
    ids = shard.ids
    chosen = sorted(select_layers(layers, len(every)))
    loader = Loader(shown.run, shown.inputs, None, ids, shard.batch_size, shard.device, shard.dtype)
    found: list[dict[str, Tensor]] = []
    done = 0
    with torch.no_grad(), frozen(shard.classifier):
        for rows in loader.batches():
            found += loader.forward.in_parts(rows, _of_rows(read, chosen, every, loader, ids, shown.padding))
            done += len(rows)
            shard.progress(done)
    values = {name: torch.cat([part[name] for part in found]) for name in found[0]}
    return values, {"layers": chosen, **loader.noted()}


def _of_rows(
    read: _Read,
    chosen: Sequence[int],
    every: Sequence[nn.Module],
    loader: Loader,
    ids: Sequence[str],
    padding: bool,
) -> Callable[[Tensor], dict[str, Tensor]]:
    def measure(rows: Tensor) -> dict[str, Tensor]:
        """Measurements of some examples, (b, L, ...); starts again after running out of memory."""
        names = [ids[row] for row in rows.tolist()]
        seen: dict[int, Mapping[str, Tensor]] = {}

        def see(number: int, layer: nn.Module, x: Tensor, mask: Tensor | None) -> None:
            seen[number] = read(number, layer, x, mask, names)

        with observed([(number, every[number]) for number in chosen], see, padding=padding):
            loader.forward.whole(loader.images(rows))
        return {
            name: torch.stack([seen[number][name].cpu() for number in chosen], dim=1)
            for name in seen[chosen[0]]
        }

    return measure
