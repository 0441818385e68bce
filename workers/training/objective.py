"""Training objective: the loss of a batch, or its loss at adversarial images.

PGD-AT: Madry et al., "Towards Deep Learning Models Resistant to Adversarial Attacks", ICLR 2018, eq. 2.1:

    CE(f(x'), y)  with x' = argmax CE(f(x'), y), by PGD from a uniform random start

TRADES: Zhang et al., "Theoretically Principled Trade-off between Robustness and Accuracy", ICML 2019,
equation 5 and algorithm 1:

    CE(f(x), y) + beta KL(f(x) || f(x'))  with x' = argmax KL(f(x) || f(x')), by PGD from x + 0.001 N(0, 1)

The attack sees the model in eval mode, as in the released code of TRADES and the `robustness` library of
Madry's group; the loss is in training mode. TRADES' gradient flows through f(x) and f(x'), as released.
Deviations: the release computes f(x) of the update twice (with different dropout), here once; mixed labels
(mixup) are attacked as they are; label smoothing is never in the attack's loss.

Legend: B batch, C channels, S image side, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from assay.attacks.randomness import Randomness, Source
from assay.attacks.threat import PIXELS, Ball, clip_to, steepest
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.training.recipe import AdversarialTraining

Logits = Callable[[Tensor], Tensor]
"""A classifier: images (B, C, S, S) in [0, 1] to logits (B, K)."""

TRADES_START = 0.001


class Objective(NamedTuple):
    """Loss of a batch."""

    loss: Tensor  # to minimise, a mean over the batch
    logits: Tensor  # of clean images, (B, K)
    adversarial_logits: Tensor | None  # of adversarial images, (B, K); None without an attack
    passes: int = 1  # forward passes behind the loss

    def plus(self, auxiliary: Sequence[Tensor]) -> Objective:
        """Adds auxiliary losses, weighted for one pass: the mean over two of TRADES."""
        return self._replace(loss=sum((loss.to(self.loss) / self.passes for loss in auxiliary), self.loss))


class Attacked(NamedTuple):
    """Adversarial images (B, C, S, S) in [0, 1], and clean logits (B, K)."""

    images: Tensor
    clean_logits: Tensor


def plain(model: Logits, images: Tensor, target: Tensor, smoothing: float) -> Objective:
    """Cross-entropy of images (B, C, S, S), of a model in training mode."""
    logits = model(images)
    return Objective(functional.cross_entropy(logits, target, label_smoothing=smoothing), logits, None)


def starts_of(seed: int, step: int, rows: Sequence[int], device: torch.device) -> Source:
    """Draws of a step's random starts, keyed by rows in the whole batch."""
    return Source(Randomness(seed, "adversarial"), [str(row) for row in rows], step, device)


def pixel_loss(
    logits: Tensor, maps: Tensor, label_smoothing: float, pixels: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of the labelled pixels, of logits (B, K, S, S) and maps, int64 (B, S, S).

    Maps have classes or IGNORE; label smoothing is in [0, 1). `pixels`: labelled pixels of the whole batch;
    None: of these maps. Returns this part's share of the mean over all pixels (0 without labels), and the
    numbers of correct and labelled pixels.
    """
    # A row per pixel: torch's 2D loss has no deterministic GPU kernel.
    rows, truth = logits.movedim(1, -1).flatten(0, -2), maps.flatten()  # (B * S * S, K), (B * S * S,)
    judged = (truth != IGNORE).sum()
    total = functional.cross_entropy(
        rows, truth, ignore_index=IGNORE, label_smoothing=label_smoothing, reduction="sum"
    )
    right = (rows.detach().argmax(dim=1) == truth).sum()
    return total / (judged if pixels is None else pixels).clamp(min=1), right, judged


def attack(
    model: Logits, images: Tensor, target: Tensor, training: AdversarialTraining, draws: Source
) -> Attacked:
    """Projected gradient ascent in the ball around each image of (B, C, S, S), in [0, 1].

    The model is in eval mode; an image's logits depend on it alone. Target: labels, int64 (B,), or class
    probabilities (B, K); `draws` has an id for each image.
    """
    with torch.no_grad():
        clean_logits = model(images)
    ball = Ball("Linf", training.epsilon)
    trades = training.objective == "trades"
    points = clip_to(images + _start(images, ball, trades, draws), PIXELS)
    for _ in range(training.steps):
        points.requires_grad_()
        with torch.enable_grad():
            logits = model(points)
            if trades:
                distance = _divergence(clean_logits, logits)
            else:
                distance = functional.cross_entropy(logits, target, reduction="sum")
            (gradient,) = torch.autograd.grad(distance, points)
        moved = points.detach() + training.step_size * steepest(gradient, "Linf")
        points = clip_to(images + ball.project(moved - images), PIXELS)
    return Attacked(points, clean_logits)


def robust(
    model: Logits,
    images: Tensor,
    attacked: Attacked,
    target: Tensor,
    training: AdversarialTraining,
    smoothing: float,
) -> Objective:
    """Loss of PGD-AT or TRADES at the points of `attack` for images (B, C, S, S), in training mode."""
    passes = training.passes_of_update
    if training.objective == "pgd_at":
        logits = model(attacked.images)
        loss = functional.cross_entropy(logits, target, label_smoothing=smoothing)
    else:
        natural, logits = model(images), model(attacked.images)
        distance = _divergence(natural, logits) / len(images)
        loss = functional.cross_entropy(natural, target, label_smoothing=smoothing) + training.beta * distance
    return Objective(loss, attacked.clean_logits, logits, passes)


def _start(images: Tensor, ball: Ball, trades: bool, draws: Source) -> Tensor:
    drawn = (draws.normal if trades else draws.uniform)(tuple(images.shape[1:])).to(images)  # (B, C, S, S)
    return TRADES_START * drawn if trades else ball.cube_start(drawn)


def _divergence(natural: Tensor, adversarial: Tensor) -> Tensor:
    """KL(f(x) || f(x')), summed over the batch; logits (B, K) each."""
    log_p, log_q = natural.log_softmax(dim=1), adversarial.log_softmax(dim=1)
    return functional.kl_div(log_q, log_p, reduction="sum", log_target=True)
