"""Probes whether a model's answers repeat, and depend on the batch, on a few unattacked images.

A model that draws random numbers, or whose outputs mix the examples of a batch, makes an attack look weaker
than it is. Source: Athalye et al. 2018, "Obfuscated Gradients"; AutoAttack's check of randomised defences.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from assay.attacks.kernel import Forward, frozen
from assay.workers.evaluation.engine.rollout import opening
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.training.randomness import caller_generators_restored, derive_seed, seed_generators

IMAGES = 16
# As a share of the largest logit. The same pass repeats exactly; another batch changes the rounding, which
# some mechanisms amplify (RPC-Attention: float32 differs from float64 by some thousandths).
REPEATED, REGROUPED = 1e-4, 1e-2


def probe_shard(shard: Shard) -> dict[str, int]:
    """Anomalies in the model's answers to the first few examples of a shard; see `probe`."""
    with torch.no_grad(), frozen(shard.classifier):
        if shard.task == "language":
            model = shard.language_model
            return probe(
                lambda words: model.negative_log_likelihood(words[:, :-1], words[:, 1:]), _windows(shard)
            )
        if shard.task == "control":
            contexts = opening(shard, range(min(IMAGES, len(shard.ids)))).to(shard.device)
            return probe(shard.classifier, contexts.to(next(shard.classifier.parameters()).dtype))
        images = shard.images(range(min(IMAGES, len(shard.ids)))).to(shard.device)
        if images.is_floating_point():
            images = images.to(next(shard.classifier.parameters()).dtype)
        return probe(shard.classifier, images)


def _windows(shard: Shard) -> Tensor:
    """The first few windows of a text, int64 (B, L + 1)."""
    stream = torch.from_numpy(shard.text.stream())
    length = min(shard.image_size, len(stream) - 1)
    count = min(IMAGES, (len(stream) - 1) // length)
    places = torch.arange(count)[:, None] * length + torch.arange(length + 1)
    return stream[places].long().to(shard.device)


def probe(model: Forward, images: Tensor) -> dict[str, int]:
    """Runs the images together, together again, and in two groups of another order.

    Args:
        model: Maps images (B, C, H, W) to logits (B, classes).
        images: At least one.

    Returns:
        `random_outputs` and `batch_dependent`: the number of images whose logits changed, if above 0.
    """
    first, again = model(images), model(images)
    order = torch.arange(len(images) - 1, -1, -1, device=images.device)
    half = (len(images) + 1) // 2
    apart = torch.cat([model(images[part]) for part in order.split(half)])[order.argsort()]
    found = {"random_outputs": changed(first, again, REPEATED)}
    if not found["random_outputs"]:
        found["batch_dependent"] = changed(first, apart, REGROUPED)
    return {code: count for code, count in found.items() if count}


def changed(one: Tensor, other: Tensor, tolerance: float) -> int:
    """Number of images whose two answers (B, classes) differ by more than a share of their largest logit."""
    one, other = one.flatten(1), other.flatten(1)  # segmentation has logits per pixel
    scale = one.abs().masked_fill(~one.isfinite(), 0.0).amax(1).clamp(min=1e-12)
    # Not finite in both is a case of its own (`nonfinite`), not a change.
    difference = torch.where(one == other, 0.0, (one - other).abs()).amax(1)
    return int((difference > tolerance * scale).sum())


@contextmanager
def keyed_answers(seed: int, evaluation: str, first: str, device: torch.device) -> Iterator[None]:
    """Seeds torch's global generators inside the block, and restores them afterwards.

    Args:
        seed: The job's.
        evaluation: Name of the evaluation or attack.
        first: Id of the shard's first example.
        device: Where the model is; its generator is seeded, and the CPU's.
    """
    with caller_generators_restored(device):
        seed_generators(derive_seed(seed, f"answers/{evaluation}/{first}", 0), device)
        yield
