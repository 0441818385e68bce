"""Losses of attacks on segmentation: the loss per pixel, and the weight of each pixel.

CE: Arnab et al. 2018, "On the Robustness of Semantic Segmentation Models to Adversarial Attacks", the
cross-entropy of every pixel. SegPGD: Gu et al. 2022, "SegPGD: An Effective and Efficient Adversarial Attack
for Evaluating and Boosting Segmentation Robustness", equations 4 to 6: step t of T weighs correct pixels with
1 - lambda and wrong ones with lambda = (t - 1) / (2 T). JS, MCE and MCE-Bal: Croce, Singh and Hein 2024
(`auto_pgd.py`), section 3.4: the Jensen-Shannon divergence of the softmax p and the label y, which depends on
p_y only,

    JS = log 2 + (p_y log p_y - (1 + p_y) log(1 + p_y)) / 2,

the cross-entropy of the correct pixels (masked), and the same with each pixel weighted by the inverse number
of pixels of its class in the training images.

A masked loss may fall because the attack succeeds, so the mask is for the gradient alone (the paper's
appendix B.1): the loss that Auto-PGD tracks is unmasked.

Not in the paper: a class without training pixels has the weight of the rarest class with any. Weights are
scaled to a mean of 1 over the training pixels, which changes no sign of a gradient.

B images, K classes, H and W height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from assay.attacks.sending import sent

LossName = Literal["ce", "segpgd", "mce", "mce_bal", "js"]

# Label of unlabelled pixels: no class, excluded from every count.
IGNORE = 255


class Losses(NamedTuple):
    """Losses of a batch, as an attack uses them."""

    raised: Tensor  # The sum over the pixels of each image, for the gradient, (B,)
    followed: Tensor  # The mean over its pixels of the unmasked loss, (B,)


@dataclass(frozen=True)
class PixelLoss:
    """One of the losses."""

    name: LossName
    class_weights: tuple[float, ...] | None = None  # Weight of each class, for `mce_bal`, (K,)

    @property
    def balanced(self) -> bool:
        """Whether it needs class weights."""
        return self.name == "mce_bal"

    def __call__(self, logits: Tensor, maps: Tensor, right: Tensor, progress: Tensor) -> Losses:
        """The loss of each image, from logits (B, K, H, W) and maps of classes or IGNORE, uint8 (B, H, W).

        `right` is the mask of correct pixels, bool (B, H, W); `progress` the fraction of the steps taken, in
        [0, 1), (B,).
        """
        counts = maps != IGNORE  # (B, H, W)
        # Not `cross_entropy`: torch's loss of maps has no deterministic GPU kernel.
        truth = maps.long().masked_fill(~counts, 0)[:, None]
        entropy = -functional.log_softmax(logits, 1).gather(1, truth)[:, 0].masked_fill(~counts, 0)
        loss, weight = entropy, counts.to(entropy.dtype)
        if self.name == "js":
            loss = divergence_from_label(-entropy)
        if self.balanced:
            weight = weight * self._weights(maps, entropy)
        followed = (loss.detach() * weight).flatten(1).sum(1) / counts.flatten(1).sum(1).clamp(min=1)
        if self.name in ("mce", "mce_bal"):
            weight = weight * right
        elif self.name == "segpgd":
            wrong_share = (progress / 2).to(entropy.dtype).view(-1, 1, 1)
            weight = weight * torch.where(right, 1 - wrong_share, wrong_share)
        return Losses((loss * weight).flatten(1).sum(1), followed)

    def _weights(self, maps: Tensor, like: Tensor) -> Tensor:
        assert self.class_weights is not None, "who builds the attack gives mce_bal its class weights"
        table = sent(torch.tensor([*self.class_weights, 0.0], dtype=like.dtype), like)
        return table[maps.long().clamp(max=len(self.class_weights))]


def divergence_from_label(log_probability: Tensor) -> Tensor:
    """Jensen-Shannon divergence of a softmax and a label, in [0, log 2], from log p_y of any shape."""
    probability = log_probability.exp()
    # As log(1 + p), whose gradient is exact for a small p.
    return log(2) + (probability * log_probability - (1 + probability) * probability.log1p()) / 2


def class_weights(pixels: Sequence[int]) -> tuple[float, ...]:
    """Class weights of `mce_bal`, (K,), from the number of training pixels of each class."""
    known = [count for count in pixels if count > 0]
    if not known:
        raise ValueError("no training pixel has a class: mce_bal cannot weigh the classes")
    scale = sum(known) / len(known)
    return tuple(scale / (count or min(known)) for count in pixels)
