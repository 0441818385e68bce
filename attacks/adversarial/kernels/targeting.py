"""Goals of attacks: the answer that an attack wants from the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.losses import LossName, cross_entropy, untargeted
from assay.attacks.kernel import Examples, Objective, Setting

TargetRule = Literal["least_likely", "random", "next"]


@dataclass(frozen=True)
class Goal:
    """Any wrong class, or one target class per example.

    A targeted attack lowers the cross-entropy to its target, and ends when it is hit. An example counts as
    broken as soon as it is misclassified at all, so that accuracy means the same under every attack.
    """

    targeted: bool = False  # Whether there are targets
    # `least_likely` is the class with the lowest logit on the unattacked image, `random` one that is drawn
    # once per example, `next` the class after the label; never the label itself
    rule: TargetRule = "least_likely"
    # One target for all examples instead of a rule. Examples of that very class get `next`
    target_class: int | None = None
    loss: LossName = "ce"  # What an untargeted attack raises

    def __post_init__(self) -> None:
        if self.rule not in get_args(TargetRule):
            raise ValueError(f"target is {self.rule!r}, allowed are {', '.join(get_args(TargetRule))}")
        if self.target_class is not None and self.target_class < 0:
            raise ValueError(f"target_class is {self.target_class}, it must be at least 0")
        if self.loss not in get_args(LossName):
            raise ValueError(f"loss is {self.loss!r}, allowed are {', '.join(get_args(LossName))}")
        if self.targeted and self.loss != "ce":
            raise ValueError(f"a targeted attack lowers the cross-entropy: its loss is ce, not {self.loss}")

    def choose(self, setting: Setting, examples: Examples) -> Tensor:
        """The class whose cross-entropy is raised (untargeted) or lowered, (B,)."""
        if not self.targeted:
            return examples.labels
        classes = examples.logits.shape[1]
        if classes < 2:
            raise ValueError("a targeted attack needs at least two classes")
        if self.target_class is not None:
            return self._given_class(examples.labels, classes)
        if self.rule == "next":
            return (examples.labels + 1) % classes
        if self.rule == "least_likely":
            return _least_likely(examples)
        draws = setting.randomness.uniform(
            setting.ids_of(examples.rows),
            (),
            purpose="target",
            dtype=torch.float64,
            device=examples.labels.device,
        )
        return (examples.labels + 1 + (draws * (classes - 1)).long()) % classes

    def objective(self, goal: Tensor) -> Objective:
        """The objective: the loss of the goal, or the negative cross-entropy where it is a target."""
        if self.targeted:
            return lambda logits: -cross_entropy(logits, goal)
        return untargeted(self.loss, goal)

    def _given_class(self, labels: Tensor, classes: int) -> Tensor:
        assert self.target_class is not None
        if self.target_class >= classes:
            raise ValueError(f"target_class is {self.target_class}, the model has classes 0 to {classes - 1}")
        return torch.where(labels == self.target_class, (labels + 1) % classes, self.target_class)


def is_targeted(attack: object) -> bool:
    """Whether an attack has a target for each example."""
    goal = getattr(attack, "goal", None)
    return isinstance(goal, Goal) and goal.targeted


def _least_likely(examples: Examples) -> Tensor:
    # Classes that are switched off with minus infinity cannot be reached.
    logits = examples.logits.masked_fill(examples.logits.isneginf(), torch.inf)
    logits = logits.scatter(1, examples.labels[:, None], torch.inf)
    index = torch.arange(logits.shape[1], device=logits.device)
    lowest = torch.where(logits == logits.amin(1, keepdim=True), index, logits.shape[1])
    return lowest.amin(1).clamp(max=logits.shape[1] - 1)
