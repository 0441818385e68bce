"""Losses of gradient attacks on classifiers, to be raised.

With the logits z, in descending order z_1 >= z_2 >= ..., p = softmax(z), the label y and the target t:

    ce            -log p_y
    margin        max_{i != y} z_i - z_y                         Carlini and Wagner 2017, without a bound
    dlr           -(z_y - max_{i != y} z_i) / (z_1 - z_3)        Croce and Hein 2020, section 4
    mifpe         -log softmax(10 z / [z_1 - z_2])_y             Yu and Xu 2023; [.] has no gradient
    pma           max_{i != y} p_i - p_y                         Xie et al. 2024
    margin, t     z_t - z_y
    dlr, t        -(z_y - z_t) / (z_1 - (z_3 + z_4) / 2)         Croce and Hein 2020, section 4

Croce and Hein 2020: `auto_pgd.py`; Yu and Xu, "Efficient Loss Function by Minimizing the Detrimental Effect
of Floating-Point Errors on Gradient-Based Attacks"; Xie et al., "Towards Million-Scale Adversarial Robustness
Evaluation With Stronger Individual Attacks" (arXiv 2411.15210, the probability margin).

Where p_y rounds to 1, the gradients of ce and pma are zero: both fail, and say nothing about the model.
margin, dlr and mifpe have the same sign of the gradient for z and a z with a > 0, dlr and mifpe the same
value. mifpe never falls below log(1 + exp(-10)) while y is predicted: its value says little about how near
the boundary is.

As in the reference codes, 1e-12 is added to the denominators of dlr, and here of mifpe. The factor 10 is its
authors' default. Ties between logits may be broken differently.

B batch, C classes, T targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from assay.attacks.kernel import Objective

LossName = Literal["ce", "margin", "dlr", "mifpe", "pma"]
TargetedLossName = Literal["dlr", "margin"]

TINY = 1e-12
MIFPE_SCALE = 10.0


class Loss(Protocol):
    """A loss to raise, and its sequence of targets."""

    def targets(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The targets of each example in their order, (B, T); the label where no target is.

        `labels` (B,) are the classes to lead away from, `logits` (B, C) are of the unattacked images.
        """

    def objective(self, labels: Tensor, target: Tensor) -> Objective:
        """The loss for these labels and targets, (B,) each."""


@dataclass(frozen=True)
class Untargeted:
    """Loss of the label alone."""

    name: LossName  # Which one

    def targets(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The labels, (B, 1)."""
        if self.name == "dlr" and logits.shape[1] < 3:
            raise ValueError(f"the DLR loss needs at least 3 classes, there are {logits.shape[1]}")
        return labels[:, None]

    def objective(self, labels: Tensor, target: Tensor) -> Objective:
        """As `Loss`."""
        del target
        return untargeted(self.name, labels)


@dataclass(frozen=True)
class Targeted:
    """Difference between the label's logit and a target's."""

    count: int  # How many targets. Where there are fewer wrong classes, each of them once
    name: TargetedLossName = "dlr"  # Which loss
    # Among how many wrong classes `malt` chooses the targets. 0 is the order of the logits on the unattacked
    # image, the highest first
    candidates: int = 0

    def targets(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The targets or candidates, (B, T) with T < C, those with the highest logits first."""
        classes = logits.shape[1]
        if self.name == "dlr" and classes < 4:
            raise ValueError(f"the targeted DLR loss needs at least 4 classes, there are {classes}")
        if classes < 2:
            raise ValueError(f"a targeted loss needs at least 2 classes, there are {classes}")
        wrong = _without(logits.argsort(dim=1, descending=True, stable=True), labels)
        return wrong[:, : max(self.count, self.candidates)]

    def objective(self, labels: Tensor, target: Tensor) -> Objective:
        """As `Loss`."""
        if self.name == "margin":
            return lambda logits: targeted_margin(logits, labels, target)
        return lambda logits: targeted_dlr(logits, labels, target)


def untargeted(name: LossName, labels: Tensor) -> Objective:
    """The loss of this name for these labels, (B,)."""
    loss = _UNTARGETED[name]
    return lambda logits: loss(logits, labels)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy, (B,)."""
    return functional.cross_entropy(logits, labels, reduction="none")


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The highest other logit minus the label's, (B,)."""
    place = labels[:, None]
    others = logits.scatter(1, place, -torch.inf).amax(1)
    return others - logits.gather(1, place).squeeze(1)


def mifpe(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of the logits divided by a tenth of the gap between the two highest, (B,)."""
    first, second = logits.detach().topk(2, dim=1).values.unbind(1)
    return cross_entropy(logits * (MIFPE_SCALE / (first - second + TINY))[:, None], labels)


def probability_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The highest other probability minus the label's, (B,)."""
    return margin(logits.softmax(1), labels)


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """The difference of logits ratio, (B,)."""
    top = logits.topk(3, dim=1)
    own = logits.gather(1, labels[:, None]).squeeze(1)
    other = torch.where(top.indices[:, 0] == labels, top.values[:, 1], top.values[:, 0])
    return -(own - other) / (top.values[:, 0] - top.values[:, 2] + TINY)


def targeted_dlr(logits: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """The targeted difference of logits ratio, (B,)."""
    first, _, third, fourth = logits.topk(4, dim=1).values.unbind(1)
    own, wanted = logits.gather(1, torch.stack([labels, target], dim=1)).unbind(1)
    return -(own - wanted) / (first - 0.5 * (third + fourth) + TINY)


def targeted_margin(logits: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """The target's logit minus the label's, (B,)."""
    own, wanted = logits.gather(1, torch.stack([labels, target], dim=1)).unbind(1)
    return wanted - own


_UNTARGETED: dict[LossName, Callable[[Tensor, Tensor], Tensor]] = {
    "ce": cross_entropy,
    "margin": margin,
    "dlr": dlr,
    "mifpe": mifpe,
    "pma": probability_margin,
}


def _without(order: Tensor, labels: Tensor) -> Tensor:
    """Takes the label out of each row of classes: (B, C) to (B, C - 1), the others in their order."""
    classes = order.shape[1]
    place = (order == labels[:, None]).int().argmax(1, keepdim=True)
    index = torch.arange(classes - 1, device=order.device)[None]
    return order.gather(1, index + (index >= place))
