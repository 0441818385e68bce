"""Probes whether a model's answers repeat, and depend on the batch, on a few unattacked images.

A model that draws random numbers, or whose outputs mix the examples of a batch, makes an attack look weaker
than it is. Source: Athalye et al. 2018, "Obfuscated Gradients"; AutoAttack's check of randomised defences.

A small change of float32 logits may be rounding, or an effect as small: Skyformer's released normaliser moves
logits by 1e-6 to 1e-3 of the largest one. A float64 copy of the model tells them apart, since rounding
shrinks by 2^-29 there and an effect does not.

B = batch.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from assay.attacks.kernel import Forward, frozen
from assay.models.programs.program import Program, TextProgram
from assay.service.contract.findings.evidence import ProbeEvidence
from assay.workers import accelerator
from assay.workers.evaluation.engine.attack.gradient_probe import gradient_evidence
from assay.workers.evaluation.engine.probabilities import probability_evidence
from assay.workers.evaluation.engine.pursuit import watched_pursuit
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.training.randomness import caller_generators_restored, derive_seed, seed_generators

IMAGES = 16
# As a share of the largest logit. The same pass repeats exactly; another batch changes the rounding, which
# some mechanisms amplify (RPC-Attention: float32 differs from float64 by some thousandths).
REPEATED, REGROUPED = 1e-4, 1e-2
# In float64. REGROUPED is 8.4e4 units of float32's rounding (1.2e-7); as many of float64's (2.2e-16) are
# 1.9e-11, and 1e-8 leaves a factor of 500.
CHANGED = 1e-8
# A model may have operations in float32 that its float64 copy keeps. Their rounding shows when a batch of
# copies of an image is cut; changes up to so many times that are no evidence.
MARGIN = 100

Wide = Callable[[], Forward]
"""Makes a float64 copy of a model, taking the same input."""


def first_look(shard: Shard, *, attacked: bool) -> dict[str, Any]:
    """What the first examples of a shard tell of its model, as evidence for warnings.

    `probe_shard`, `causality_evidence`, `probability_evidence`, `inactive_pursuit` from the first pass, and
    where the examples are `attacked` their `first_gradients`.
    """
    with watched_pursuit(shard.classifier) as pursuit:
        found = probe_shard(shard)
    _, given, asked = question_of(shard)
    outputs = probability_evidence(shard.classifier, asked)
    evidence = {**found, **shard.methods.evidence(shard), **outputs, **pursuit}
    if attacked:
        with keyed_answers(shard.seed, "first_gradients", shard.ids[0], shard.device):
            gradients = gradient_evidence(shard, given, repeats="random_outputs" not in found)
        evidence |= {} if gradients is None else {"first_gradients": gradients}
    return evidence


def probe_shard(shard: Shard) -> ProbeEvidence:
    """Anomalies in the answers to a shard's first few examples, as `probe`; fewer if memory is short."""
    with torch.no_grad(), frozen(shard.classifier):
        answer, given, _ = question_of(shard)
        classifier = shard.classifier
        program = isinstance(
            getattr(classifier, "backbone", None), Program | TextProgram
        )  # its dtypes are its own

        def wide() -> Forward:
            copied = copy.deepcopy(classifier).double()
            return lambda images: answer(copied, images.double() if images.is_floating_point() else images)

        while True:
            try:
                return probe(lambda images: answer(classifier, images), given, wide=None if program else wide)
            except torch.OutOfMemoryError:
                if len(given) == 1:
                    return {}  # the evaluation says so itself
            given = given[: len(given) // 2]
            accelerator.empty_cache()


class Question(NamedTuple):
    """How a model is asked about a few examples."""

    answer: Callable[[nn.Module, Tensor], Tensor]  # of the model and `given`
    given: Tensor  # the examples, (B, ...)
    inputs: Tensor  # the model's inputs in them


def question_of(shard: Shard) -> Question:
    """The question of the shard's task about the first few examples."""
    question: Question = shard.methods.question(shard, range(min(IMAGES, len(shard.ids))))
    return question


def logits_question(shard: Shard, given: Tensor) -> Question:
    """The logits of the inputs `given`, on the model's device and in its type."""
    given = given.to(shard.device)
    if given.is_floating_point():
        # A program may have no parameters: then the normalisation's buffers have the type.
        tensors = itertools.chain(shard.classifier.parameters(), shard.classifier.buffers())
        given = given.to(next((one.dtype for one in tensors if one.is_floating_point()), given.dtype))
    return Question(_logits, given, given)


def losses_question(shard: Shard) -> Question:
    """The losses of the words in the first few windows of a text."""
    given = _windows(shard)
    return Question(_losses, given, given[:, :-1])


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    logits: Tensor = model(images)
    return logits


def _losses(model: nn.Module, words: Tensor) -> Tensor:
    losses: Tensor = model.negative_log_likelihood(words[:, :-1], words[:, 1:])  # type: ignore[operator]
    return losses


def _windows(shard: Shard) -> Tensor:
    stream = torch.from_numpy(shard.text.stream())
    length = min(shard.image_size, len(stream) - 1)
    count = min(IMAGES, (len(stream) - 1) // length)
    places = torch.arange(count)[:, None] * length + torch.arange(length + 1)
    return stream[places].long().to(shard.device)


def probe(model: Forward, images: Tensor, *, wide: Wide | None = None) -> ProbeEvidence:
    """Runs the images (B, C, H, W) together, together again, and in two groups of another order.

    Changes above REPEATED or REGROUPED are anomalies. Smaller ones are measured again in float64, where the
    limit is CHANGED, by the copy that `wide` makes; None where the model has none, and small changes are
    taken for rounding. Returns `random_outputs` or `batch_dependent`, the number of images whose logits
    changed, and with the suffix `_change` the largest change of an image's logits, as a share of its largest
    one; empty if no image's change.
    """
    first, again = model(images), model(images)
    repeated = changes(first, again)
    if found := _evidence("random_outputs", repeated[repeated > REPEATED]):
        return found
    regrouped = changes(first, _in_halves(model, images))
    if found := _evidence("batch_dependent", regrouped[regrouped > REGROUPED]):
        return found
    if wide is None or not bool((torch.maximum(repeated, regrouped) > torch.finfo(first.dtype).eps).any()):
        return {}
    try:
        return _probe_wide(wide(), images, random=bool(repeated.any()))
    except Exception:  # no memory for a copy, or a model that cannot be copied or run in float64
        return {}


def _probe_wide(model: Forward, images: Tensor, *, random: bool) -> ProbeEvidence:
    """As `probe`, in float64; a second pass only if the answers of float32 were not the same twice."""
    first = model(images)
    if first.dtype != torch.float64:
        return {}
    if random:
        repeated = changes(first, model(images))
        if found := _evidence("random_outputs", repeated[repeated > CHANGED]):
            return found
    regrouped = changes(first, _in_halves(model, images))
    if not bool((regrouped > CHANGED).any()):
        return {}
    same = images[:1].expand_as(images)
    rounding = float(changes(model(same), _in_halves(model, same)).max())
    limit = max(CHANGED, min(MARGIN * rounding, REGROUPED))
    return _evidence("batch_dependent", regrouped[regrouped > limit])


def _in_halves(model: Forward, images: Tensor) -> Tensor:
    order = torch.arange(len(images) - 1, -1, -1, device=images.device)
    half = (len(images) + 1) // 2
    return torch.cat([model(images[part]) for part in order.split(half)])[order.argsort()]


def _evidence(code: Literal["random_outputs", "batch_dependent"], found: Tensor) -> ProbeEvidence:
    if not len(found):
        return {}
    largest = float(found.max())
    evidence = {code: len(found)} | ({f"{code}_change": largest} if math.isfinite(largest) else {})
    return cast(ProbeEvidence, evidence)


def changed(one: Tensor, other: Tensor, tolerance: float) -> int:
    """Number of images whose two answers (B, classes) differ by more than a share of their largest logit."""
    return int((changes(one, other) > tolerance).sum())


def changes(one: Tensor, other: Tensor) -> Tensor:
    """Largest difference of two answers (B, classes) to an image, as a share of its largest logit, (B,)."""
    one, other = one.flatten(1), other.flatten(1)  # segmentation has logits per pixel
    scale = one.abs().masked_fill(~one.isfinite(), 0.0).amax(1).clamp(min=1e-12)
    difference = torch.where(one == other, 0.0, (one - other).abs()).amax(1)
    relative: Tensor = difference / scale
    return relative


@contextmanager
def keyed_answers(seed: int, evaluation: str, first: str, device: torch.device) -> Iterator[None]:
    """Seeds torch's global generators inside the block, and restores them afterwards.

    `first`: id of the shard's first example; `device`: where the model is; its generator is seeded, and the
    CPU's.
    """
    with caller_generators_restored(device):
        seed_generators(derive_seed(seed, f"answers/{evaluation}/{first}", 0), device)
        yield
