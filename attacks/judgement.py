"""Verdict of a classifier's logits on an example. Ties go to the lower class index, on every device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Verdict(NamedTuple):
    """The model's predictions for a batch."""

    prediction: Tensor  # The predicted class, -1 where the logits are not finite, int64 (B,)
    # How many classes rank above the true one: 0 is correct, below 5 is top-5 correct; the number of classes
    # where the logits are not finite; int64 (B,)
    rank: Tensor
    loss: Tensor  # Cross-entropy to the true class in float64, (B,); may be infinite or NaN
    # Whether the logits had a NaN, or no finite maximum, bool (B,). Classes may be switched off with minus
    # infinity
    nonfinite: Tensor


def judge(logits: Tensor, labels: Tensor) -> Verdict:
    """Judges logits (B, classes) against the true classes (B,)."""
    classes = logits.shape[1]
    index = torch.arange(classes, device=logits.device)
    highest = logits.amax(1, keepdim=True)
    nonfinite = ~finite(logits)
    own = logits.gather(1, labels[:, None])
    before = (logits > own) | ((logits == own) & (index < labels[:, None]))
    top = torch.where(logits == highest, index, classes).amin(1)
    return Verdict(
        prediction=top.masked_fill(nonfinite, -1),
        rank=before.sum(1).masked_fill(nonfinite, classes),
        loss=functional.cross_entropy(logits, labels, reduction="none").double(),
        nonfinite=nonfinite,
    )


def finite(logits: Tensor) -> Tensor:
    """Whether the logits are usable: no NaN, and a finite maximum; bool (B,)."""
    return logits.amax(1).abs() < torch.inf  # the maximum of a row with a NaN is NaN


def right(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether each example is classified correctly, i.e. `judge` gives rank 0; bool (B,)."""
    highest, first = logits.max(1)  # the first of equal values; NaN above all
    return (first == labels) & (highest.abs() < torch.inf)


def wrong_by(logits: Tensor, labels: Tensor) -> Tensor:
    """The highest other logit less the label's, float64 (B,); NaN where the logits are not finite."""
    place = labels[:, None]
    others = logits.scatter(1, place, -torch.inf).amax(1).double()
    difference: Tensor = others - logits.gather(1, place).squeeze(1).double()
    return difference.where(finite(logits), torch.nan)


def in_top5(rank: Tensor, classes: int) -> Tensor:
    """Whether the true class is among the five highest logits (or all, if there are fewer)."""
    return rank < min(5, classes)
