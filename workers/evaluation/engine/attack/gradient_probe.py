"""Compares the gradient of a model with the changes that small noise makes, on a few unattacked examples.

Rounding and thresholds make gradients zero or tiny while the outputs still change. Athalye et al. 2018,
"Obfuscated Gradients", section 3: gradients are then shattered, and what follows them finds too little.

With the two largest logits a, b of an example x, per pixel of a segmentation, and noise e_i:

    f(x)      = mean over pixels of z_a(x) - z_b(x)
    change^2  = sum_i (f(x + e_i) - f(x - e_i))^2
    linear^2  = sum_i sum_j (df/dx_j)^2 (2 e_ij)^2      its mean over the signs of e, were f linear
    tiny      : change > RATIO linear

Noise is as large as SHARE standard deviations of the channel, and clipped to the range of the examples.

B = batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assay.attacks.kernel import frozen
from assay.attacks.randomness import Randomness
from assay.models.layers.token_model import reads_series
from assay.service.contract.findings.evidence import GradientEvidence
from assay.workers import accelerator
from assay.workers.evaluation.engine.shard import Shard

EXAMPLES = 16
# Of them in one pass: fewer than in a batch of the attack, whose memory is the plan's.
TOGETHER = 4
# Of the noise in one direction; 8/255 where pixels have a standard deviation of 1/4.
SHARE = 0.125
DIRECTIONS = 4
RATIO = 5.0
# Smaller changes, as a share of the largest logit, are rounding.
ROUNDING = 1e-3

Margin = Callable[[Tensor], Tensor]


def gradient_evidence(shard: Shard, images: Tensor, *, repeats: bool) -> GradientEvidence | None:
    """How many of the first examples have no gradient, and how many a tiny one; None for tokens."""
    if not images.is_floating_point():
        return None
    images = images[:EXAMPLES]
    size = min(shard.batch_size, TOGETHER)
    while True:
        try:
            with frozen(shard.classifier):
                return _compared(shard, images, DIRECTIONS if repeats else 0, size)
        except torch.OutOfMemoryError:
            if size == 1:
                return None  # the attack says so itself
        size = (size + 1) // 2
        accelerator.empty_cache()


def _noise(shard: Shard, ids: Sequence[str], images: Tensor, spread: Tensor) -> Tensor:
    """Noise in each direction, (B, DIRECTIONS, ...); padded steps of a series have none."""
    shape = (DIRECTIONS, *images.shape[1:])
    draws = Randomness(shard.seed, "gradient_probe").normal(ids, shape, dtype=images.dtype)
    noise = draws.to(images.device) * SHARE * spread.unsqueeze(1)
    if reads_series(shard.classifier.backbone):
        noise = noise * images[:, None, -1:]
        noise[:, :, -1] = 0
    return noise


def _compared(shard: Shard, images: Tensor, directions: int, size: int) -> GradientEvidence:
    lowest, highest = images.min(), images.max()
    others = [axis for axis in range(images.dim()) if axis != 1]
    spread = images.std(others, keepdim=True, correction=0)
    zero = tiny = saturated = 0
    for start in range(0, len(images), size):
        part = images[start : start + size]
        margin, scale, certain = _margin(shard, part)
        saturated += certain
        gradient = _gradient(margin, part)
        change, linear = torch.zeros_like(scale), torch.zeros_like(scale)
        noise = _noise(shard, shard.ids[start : start + len(part)], part, spread)
        with torch.no_grad():
            for move in noise[:, :directions].unbind(1):
                up, down = ((part + one).clamp(lowest, highest) for one in (move, -move))
                change += (margin(up) - margin(down)).double().square()
                linear += (gradient * (up - down)).double().square().flatten(1).sum(1)
        seen = change.sqrt() > ROUNDING * scale
        tiny += int((seen & (change > RATIO**2 * linear)).sum())
        zero += int((gradient.flatten(1) == 0).all(1).sum())
    found: GradientEvidence = {"examples": len(images), "zero": zero, "tiny": tiny}
    return {**found, "saturated": saturated} if saturated else found


def _margin(shard: Shard, images: Tensor) -> tuple[Margin, Tensor, int]:
    """The difference of the two largest logits, the largest size of a logit, and how many are saturated.

    An answer is saturated where its softmax rounds to 1, for most pixels of a segmentation: the derivative of
    the cross-entropy by its logit is then 0, and what is left of the gradient has another direction.
    """
    model: Margin = shard.classifier
    with torch.no_grad():
        logits = model(images)
        pair = logits.topk(2, dim=1).indices
        scale = logits.abs().flatten(1).amax(1).double()
        certain = (logits.softmax(1).amax(1) == 1).double().reshape(len(images), -1).mean(1) > 0.5

    def margin(moved: Tensor) -> Tensor:
        first, second = model(moved).gather(1, pair).unbind(1)
        return (first - second).flatten(1).mean(1) if first.dim() > 1 else first - second

    return margin, scale, int(certain.sum())


def _gradient(margin: Margin, images: Tensor) -> Tensor:
    """The gradient of each margin by its own example; zero where there is no path back."""
    asked = images.detach().clone().requires_grad_()
    with torch.enable_grad():
        value = margin(asked).sum()
        if not value.requires_grad:
            return torch.zeros_like(asked)
        (found,) = torch.autograd.grad(value, asked, allow_unused=True)
    return torch.zeros_like(asked) if found is None else found
