"""Probe of causality: whether what a language model says of a word depends on later words.

The perplexity of a text rates a predictor: the probability of each word given those before it. A model
that sees later words, by a mask that is missing, a statistic over the whole window or other windows of the
batch, has a number of the same form that means nothing. The probe replaces the suffix of some windows behind
several cuts, and compares the loss of each word before the cut: it must not change.

A part of the model that looks at later tokens by its definition therefore says so with the attribute
`sees_later_tokens`; a model with such a part leaks, regardless of what the probe finds.

It runs in float64 where the model can, in shapes that do not change between the passes: a causal model's
losses are then equal to the last bits. Passes begin with the same random state, so that a model which draws
random numbers draws the same ones.

Legend: B windows, L words of a window, V words of the vocabulary.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from assay.attacks.kernel import frozen
from assay.models.layers.token_model import TokenModel
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.training.randomness import caller_generators_restored, generator, seed_generators

WINDOWS = 4
# Logits of a pass, at most, unless one window has more.
MAX_LOGITS = 2**26
# Shares of a window at which it is cut, beside its first and its last word.
CUTS = (0.25, 0.5, 0.75)
# Largest change of a loss in nats that counts as rounding, as a multiple of max(loss, 1): by the least
# precise type of the weights.
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-4}
COARSE = 1e-2
# Where no loss was seen to change.
NO_CHANGE: Mapping[str, Any] = {"words": 0, "compared": 0, "change": 0.0}
# A change that is no larger than this multiple of that between two equal passes is no leak.
NOISE = 10


class Leak(NamedTuple):
    """Words whose loss depends on later words."""

    words: int  # how many of the compared ones, over all cuts
    compared: int  # words before a cut, over all windows and cuts
    change: float  # largest change of a loss, in nats; infinite where one became or ceased to be finite


def causality_evidence(shard: Shard) -> dict[str, Any]:
    """`leaks_future` for a language model that sees later words; empty for others.

    `by_construction` names the parts that say of themselves that they look at later tokens.
    """
    found = _measured_leak(shard)
    if stated := leaking_parts(shard.language_model):
        return {"leaks_future": {**(found or NO_CHANGE), "by_construction": stated}}
    return {} if found is None else {"leaks_future": found}


def leaking_parts(model: nn.Module) -> list[str]:
    """Names of the kinds of parts of a model that look at later tokens by their definition, sorted."""
    parts = [part for part in model.modules() if getattr(part, "sees_later_tokens", False)]
    return sorted({str(getattr(part, "name", type(part).__name__)) for part in parts})


def _measured_leak(shard: Shard) -> dict[str, Any] | None:
    stream = torch.from_numpy(shard.text.stream())
    length = min(shard.image_size, len(stream) - 1)
    if length < 2 or shard.classes < 2:
        return None
    most = max(1, min(WINDOWS, MAX_LOGITS // (length * shard.classes)))
    count = min(most, (len(stream) - 1) // length)
    places = torch.arange(count)[:, None] * length + torch.arange(length + 1)
    found = find_leak(shard.language_model, stream[places].long().to(shard.device), shard.classes)
    if found is None:
        return None
    change = found.change if math.isfinite(found.change) else None
    return {"words": found.words, "compared": found.compared, "change": change}


def find_leak(model: TokenModel, windows: Tensor, vocabulary: int) -> Leak | None:
    """Words before a cut whose loss changes with the words behind it; None for a causal model.

    The windows are ids of words, int64 (B, L + 1) in [0, V), L and V at least 2: inputs, and the last target.
    The model, on their device, is left as it was.
    """
    with torch.no_grad(), caller_generators_restored(windows.device):
        chosen, first = _precise(model, windows)
        with frozen(chosen):
            noise = (_losses(chosen, windows[:, :-1], windows[:, 1:]) - first).abs()
            tolerance = _rounding(chosen) * first.abs().clamp(min=1.0) + NOISE * noise
            return _compare(chosen, windows, vocabulary, first, tolerance)


def _compare(
    model: TokenModel, windows: Tensor, vocabulary: int, first: Tensor, tolerance: Tensor
) -> Leak | None:
    """The leak over all cuts; `first` (B, L) are the losses of the windows as they are."""
    words, compared, change = 0, 0, 0.0
    for cut, inputs in _perturbed(windows[:, :-1], vocabulary):
        found = _losses(model, inputs, windows[:, 1:])[:, :cut]
        before = first[:, :cut]
        difference = torch.where(found == before, 0.0, (found - before).abs())
        unknown = ~found.isfinite() & ~before.isfinite()
        difference = torch.where(unknown, 0.0, difference.nan_to_num(nan=torch.inf, posinf=torch.inf))
        words += int((difference > tolerance[:, :cut].nan_to_num(nan=0.0)).sum())
        compared += before.numel()
        change = max(change, float(difference.max()))
    return Leak(words, compared, change) if words else None


def _perturbed(inputs: Tensor, vocabulary: int) -> Iterator[tuple[int, Tensor]]:
    """Cuts, and the inputs (B, L) with other words from the cut on; no word becomes padding, which is 0."""
    length = inputs.shape[1]
    cuts = sorted({1, *(round(share * length) for share in CUTS), length - 1} & set(range(1, length)))
    first = 1 if vocabulary > 2 else 0
    ids = vocabulary - first
    for cut in cuts:
        draws = torch.randint(1, ids, inputs.shape, generator=generator(0, "causality", cut))
        others = first + (inputs - first + draws.to(inputs.device)) % ids
        behind = torch.arange(length, device=inputs.device) >= cut
        yield cut, torch.where(behind, others, inputs)


def _precise(model: TokenModel, windows: Tensor) -> tuple[TokenModel, Tensor]:
    """The model in float64 if it runs in it, else as it is, and its losses (B, L)."""
    inputs, targets = windows[:, :-1], windows[:, 1:]
    try:
        double = copy.deepcopy(model).double()
        with frozen(double):
            return double, _losses(double, inputs, targets)
    except Exception:  # a program of fixed types may raise anything; or there is no memory for two
        with frozen(model):
            return model, _losses(model, inputs, targets)


def _losses(model: TokenModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """-log p of the targets, float64 (B, L), from the same random state in every pass."""
    seed_generators(0, inputs.device)
    return model.negative_log_likelihood(inputs, targets).double()


def _rounding(model: TokenModel) -> float:
    types = [tensor.dtype for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
    return max((ROUNDING.get(kind, COARSE) for kind in types), default=ROUNDING[torch.float32])
