"""Runs a model over examples and inspects q, k and v of its layers, or their attention matrices.

Padding is left out.

B = batch, N = tokens, H = heads, D = features of a head, L = chosen layers, n = examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import torch
from annotated_types import Interval, doc
from torch import Tensor, nn

from assay.attacks.kernel import frozen
from assay.models.layers.attention.probe import (
    KernelLayer,
    MatrixLayer,
    QueriesKeysValues,
    matrix_layers,
    observed,
    queries_keys_values,
    softmax_layers,
)
from assay.models.layers.language import PAD
from assay.models.layers.parameters import Layers, layer_rule, select_layers
from assay.models.layers.sequence_encoder import with_one_place
from assay.workers.evaluation.engine.loader import Images, Loader
from assay.workers.evaluation.engine.shard import Shard

# `model.depth` is the encoder's depth (`service/submission/compatibility.py`).
LAYER_RULES = (
    (
        layer_rule("layers")[0].replace("model.layers", "params.layers"),
        "layers must be all, first, last, or a list of layers from 0 to depth - 1",
    ),
)

# The tasks of models whose layers can be looked at with padding, and with hidden tokens.
LAYER_TASKS = ("classification", "segmentation", "language", "sequence", "series", "series_regression")

WindowLength = Annotated[
    int,
    Interval(ge=2, le=8192),
    doc("words of a window of a language model, at most those that it reads; not used for other data."),
]

Look = Callable[[int, QueriesKeysValues, Sequence[str]], Mapping[str, Tensor]]
"""From a layer's number, its q, k, v in float64, each (B, H, N, D), and the example ids, to what was measured
of each example, (B, ...)."""


LookAtMatrix = Callable[[int, Tensor], Mapping[str, Tensor]]
"""From a layer's number and its matrix in float64, (B, H, N, N), to measurements, (B, ...) each."""

_Read = Callable[[int, nn.Module, Tensor, Tensor | None, Sequence[str]], Mapping[str, Tensor]]


def look_at_layers(
    look: Look, layers: Layers, shard: Shard, *, length: int | None = None
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Measures every chosen layer for every example in float64, independent of batches.

    `length` is the number of words of a window of a language model: with it layers may be causal, and have
    padding, which `look` is told; without it every token takes part, as of images.
    """

    def read(
        number: int, layer: nn.Module, x: Tensor, mask: Tensor | None, names: Sequence[str]
    ) -> Mapping[str, Tensor]:
        seen = queries_keys_values(layer, x, mask)
        with torch.autocast(x.device.type, enabled=False):
            queries, keys, values = (part.double() for part in seen[:3])
            return look(number, QueriesKeysValues(queries, keys, values, mask), names)

    every = softmax_layers(shard.classifier, causal=length is not None)
    return _measured(read, every, layers, shard, shard.methods.shown(shard, length))


def look_at_matrices(
    look: LookAtMatrix, layers: Layers, shard: Shard, *, length: int, kernels: bool
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Measures the attention matrix of every chosen layer, as `look_at_layers`.

    `look` measures a matrix, in float64 of the model's own q and k, of the tokens that are no padding; the
    matrix of a causal layer has 0 for later tokens. With `kernels` a layer in the primal form of a kernel
    matrix counts, with that matrix.
    """

    def read(
        number: int, layer: nn.Module, x: Tensor, mask: Tensor | None, names: Sequence[str]
    ) -> Mapping[str, Tensor]:
        del names
        matrix = attention_of(layer, x, mask)
        if mask is None:
            return look(number, matrix)
        each = [
            look(number, one[None][:, :, kept][..., kept]) for one, kept in zip(matrix, mask, strict=True)
        ]
        return {name: torch.cat([found[name] for found in each]) for name in each[0]}

    every = matrix_layers(shard.classifier, kernels=kernels, causal=True)
    return _measured(read, every, layers, shard, shard.methods.shown(shard, length))


def attention_of(layer: nn.Module, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The attention or kernel matrix of each head of a layer of `matrix_layers`, (B, H, N, N), float64.

    Of tokens (B, N, C). `mask` (B, N) is true for the tokens that take part; rows of the others are
    undefined.
    """
    if isinstance(layer, MatrixLayer):
        return layer.attention_matrix(x, mask).double()
    if isinstance(layer, KernelLayer):
        left, right = layer.kernel_factors(x, mask)
        with torch.autocast(x.device.type, enabled=False):
            return left.double() @ right.double().transpose(-2, -1)
    seen = queries_keys_values(layer, x, mask)
    with torch.autocast(x.device.type, enabled=False):
        queries, keys = seen.queries.double(), seen.keys.double()
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(keys.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
        if getattr(layer, "causal", False):
            later = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return scores.softmax(dim=-1)


class Shown(NamedTuple):
    """What is run on what."""

    inputs: Images  # the model's input by row
    run: nn.Module  # the model or a part of it
    padding: bool  # whether the input may have padding
    # Whether it is labelled sequences of tokens, with 0 as padding: a causal layer is not
    # told, as it sees none of them
    tokens: bool = False


def shown_text(shard: Shard, length: int) -> Shown:
    """The input of a language model: windows of at most `length` words, without logits."""
    return Shown(windows(shard, length), _Features(shard.classifier), padding=True)


class _Features(nn.Module):
    """A language model up to its last layer, without the logits of all words."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = getattr(model, "backbone", model)

    def forward(self, tokens: Tensor) -> Tensor:
        """Features (B, N, C), or what the model returns where it has none."""
        run: Callable[[Tensor], Tensor] = getattr(self.model, "features", self.model)
        return run(tokens)


def windows(shard: Shard, length: int) -> Callable[[Sequence[int]], Tensor]:
    """Windows of a text by row, int64 (B, words): from the start of each document, or the text's last one."""
    stream, starts = torch.from_numpy(shard.text.stream()), shard.text.starts
    words = min(length, shard.image_size, len(stream))

    def of(rows: Sequence[int]) -> Tensor:
        first = torch.tensor([min(starts[shard.order[row]], len(stream) - words) for row in rows])
        return stream[first[:, None] + torch.arange(words)].long()

    return of


def _measured(
    read: _Read, every: Sequence[nn.Module], layers: Layers, shard: Shard, shown: Shown
) -> tuple[dict[str, Tensor], dict[str, object]]:
    ids = shard.ids
    chosen = sorted(select_layers(layers, len(every)))
    loader = Loader(shown.run, shown.inputs, None, ids, **shard.running)
    found: list[dict[str, Tensor]] = []
    done = 0
    with torch.no_grad(), frozen(shard.classifier):
        for rows in loader.batches():
            found += loader.forward.in_parts(rows, _of_rows(read, chosen, every, loader, ids, shown))
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
    shown: Shown,
) -> Callable[[Tensor], dict[str, Tensor]]:
    def measure(rows: Tensor) -> dict[str, Tensor]:
        """Measurements of some examples, (b, L, ...); starts again after running out of memory."""
        names = [ids[row] for row in rows.tolist()]
        seen: dict[int, Mapping[str, Tensor]] = {}
        inputs = loader.images(rows)
        present = with_one_place(inputs != PAD) if shown.tokens and inputs.dim() == 2 else None

        def see(number: int, layer: nn.Module, x: Tensor, mask: Tensor | None) -> None:
            step = len(x) // len(names)  # 2 for pairs of sequences, one after the other
            mask = present if mask is None else mask[::step]
            seen[number] = read(number, layer, x[::step], mask, names)

        with observed([(number, every[number]) for number in chosen], see, padding=shown.padding):
            loader.forward.whole(inputs)
        return {
            name: torch.stack([seen[number][name].cpu() for number in chosen], dim=1)
            for name in seen[chosen[0]]
        }

    return measure
