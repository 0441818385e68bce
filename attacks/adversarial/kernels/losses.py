"""The losses of AutoAttack.

Croce and Hein 2020, "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-free
Attacks": the difference of logits ratio (DLR) and its targeted version. With the logits z in descending order
z_1 >= z_2 >= ..., the label y and the target t:

    DLR           -(z_y - max_{i != y} z_i) / (z_1 - z_3)
    targeted DLR  -(z_y - z_t) / (z_1 - (z_3 + z_4) / 2)

Both are the same for z and a z + b with a > 0. As in the reference code, 1e-12 is added to the denominators.
Ties between logits may be broken differently.

Legend: B batch, C classes, T targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from assay.attacks.kernel import Objective

TINY = 1e-12


class Loss(Protocol):
    """A loss to raise, and its sequence of targets."""

    def targets(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Returns the targets of each example in their order, (B, T); the label where there are none.

        Args:
            labels: The class that the attack leads away from, (B,).
            logits: The model's answer to the unattacked images, (B, C).

        Raises:
            ValueError: If there are too few classes for this loss.
        """

    def objective(self, labels: Tensor, target: Tensor) -> Objective:
        """Returns the loss for these labels and targets, (B,) each."""


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy to the label."""

    def targets(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Returns the labels, (B, 1)."""
        del logits
        return labels[:, None]

    def objective(self, labels: Tensor, target: Tensor) -> Objective:
        """Returns the loss for these labels."""
        del target
        return lambda logits: functional.cross_entropy(logits, labels, reduction="none")


@dataclass(frozen=True)
class DLR:
    """Difference of logits ratio."""

    def targets(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Returns the labels, (B, 1)."""
        if logits.shape[1] < 3:
            raise ValueError(f"the DLR loss needs at least 3 classes, there are {logits.shape[1]}")
        return labels[:, None]

    def objective(self, labels: Tensor, target: Tensor) -> Objective:
        """Returns the loss for these labels."""
        del target
        return lambda logits: dlr(logits, labels)


@dataclass(frozen=True)
class TargetedDLR:
    """Difference of logits ratio between the label and a target.

    Attributes:
        count: How many targets: the wrong classes with the highest logits on the unattacked image come first.
            Where there are fewer wrong classes, each of them once.
    """

    count: int

    def targets(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Returns the targets, (B, T) with T = min(count, C - 1)."""
        classes = logits.shape[1]
        if classes < 4:
            raise ValueError(f"the targeted DLR loss needs at least 4 classes, there are {classes}")
        wrong = _without(logits.argsort(dim=1, descending=True, stable=True), labels)
        return wrong[:, : self.count]

    def objective(self, labels: Tensor, target: Tensor) -> Objective:
        """Returns the loss for these labels and targets."""
        return lambda logits: targeted_dlr(logits, labels, target)


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the difference of logits ratio, (B,)."""
    top = logits.topk(3, dim=1)
    own = logits.gather(1, labels[:, None]).squeeze(1)
    other = torch.where(top.indices[:, 0] == labels, top.values[:, 1], top.values[:, 0])
    return -(own - other) / (top.values[:, 0] - top.values[:, 2] + TINY)


def targeted_dlr(logits: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """Returns the targeted difference of logits ratio, (B,)."""
    first, _, third, fourth = logits.topk(4, dim=1).values.unbind(1)
    own, wanted = logits.gather(1, torch.stack([labels, target], dim=1)).unbind(1)
    return -(own - wanted) / (first - 0.5 * (third + fourth) + TINY)


def _without(order: Tensor, labels: Tensor) -> Tensor:
    """Takes the label out of each row of classes: (B, C) to (B, C - 1), the others in their order."""
    classes = order.shape[1]
    place = (order == labels[:, None]).int().argmax(1, keepdim=True)
    index = torch.arange(classes - 1, device=order.device)[None]
    return order.gather(1, index + (index >= place))
