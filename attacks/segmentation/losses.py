"""Losses of attacks on segmentation: what is raised for each pixel, and which pixels count how much.

CE: Arnab et al. 2018, "On the Robustness of Semantic Segmentation Models to Adversarial Attacks", the
cross-entropy of every pixel. SegPGD: Gu et al. 2022, "SegPGD: An Effective and Efficient Adversarial Attack
for Evaluating and Boosting Segmentation Robustness", equations 4 to 6: of T steps, step t weighs pixels that
are right with 1 - lambda and those that are wrong with lambda = (t - 1) / (2 T). JS, MCE and MCE-Bal: Croce,
Singh and Hein 2024, "Towards Reliable Evaluation and Fast Training of Robust Semantic Segmentation Models",
section 3.4: the Jensen-Shannon divergence of the softmax p and the label y, which depends on p_y only,

    JS = log 2 + (p_y log p_y - (1 + p_y) log(1 + p_y)) / 2,

the cross-entropy of those pixels that are right (masked), and the same with each pixel weighed by the inverse
number of pixels that its class has in the training images.

Auto-PGD adapts its step size to the loss, and a masked loss may fall because the attack succeeds. So the mask
is for the gradient alone (the paper's appendix B.1): what is followed is the loss without it.

The paper does not say what a class without training pixels weighs: here, as much as the rarest class that has
some. Weights are scaled to a mean of 1 over the training pixels, which changes no sign of a gradient.

Legend: B images, K classes, H and W height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

LossName = Literal["ce", "segpgd", "mce", "mce_bal", "js"]

# In label maps: belongs to no class, and counts for nothing.
IGNORE = 255


class Losses(NamedTuple):
    """What an attack sees of a batch.

    Attributes:
        raised: What is differentiated: a sum over the pixels of each image, (B,).
        followed: Mean over its pixels of the loss without mask, (B,).
    """

    raised: Tensor
    followed: Tensor


@dataclass(frozen=True)
class PixelLoss:
    """One of the losses.

    Attributes:
        name: Which one.
        class_weights: Of `mce_bal`: the weight of each class, (K,).
    """

    name: LossName
    class_weights: tuple[float, ...] | None = None

    @property
    def balanced(self) -> bool:
        """Whether it needs the weights of the classes."""
        return self.name == "mce_bal"

    def __call__(self, logits: Tensor, maps: Tensor, right: Tensor, progress: Tensor) -> Losses:
        """The loss of each image.

        Args:
            logits: (B, K, H, W).
            maps: Classes or IGNORE, uint8 (B, H, W).
            right: Which pixels are given their class, bool (B, H, W).
            progress: Share of the steps that were taken, in [0, 1), (B,).
        """
        counts = maps != IGNORE  # (B, H, W)
        entropy = functional.cross_entropy(logits, maps.long(), ignore_index=IGNORE, reduction="none")
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
        table = torch.tensor([*self.class_weights, 0.0], dtype=like.dtype, device=like.device)
        return table[maps.long().clamp(max=len(self.class_weights))]


def divergence_from_label(log_probability: Tensor) -> Tensor:
    """The Jensen-Shannon divergence of a softmax and a label, in [0, log 2], from log p_y; of any shape."""
    probability = log_probability.exp()
    # As log(1 + p), whose gradient is exact for a small p.
    return log(2) + (probability * log_probability - (1 + probability) * probability.log1p()) / 2


def class_weights(pixels: Sequence[int]) -> tuple[float, ...]:
    """The weights of `mce_bal`, (K,).

    Args:
        pixels: How many pixels of each class the training images have, (K,).

    Raises:
        ValueError: no class has any.
    """
    known = [count for count in pixels if count > 0]
    if not known:
        raise ValueError("no training pixel has a class: mce_bal cannot weigh the classes")
    scale = sum(known) / len(known)
    return tuple(scale / (count or min(known)) for count in pixels)
