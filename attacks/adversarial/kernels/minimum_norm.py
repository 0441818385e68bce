"""Searches for the smallest adversarial perturbation by gradient steps, a single run for each image.

A step of the kernel evaluates the present iterate, keeps it if it is adversarial and smaller than the last
kept, and moves. An image for which nothing is found counts as itself, and is right.

Where the searches end the model is nearly undecided, and rounding in another batch may turn the answer: an
iterate counts only if the wrong logit leads by ROUNDINGS roundings of the largest logit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, get_args

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.judgement import right, wrong_by
from assay.attacks.kernel import Examples, Forward, Objective, Setting, State, begin, keep
from assay.attacks.passes import evaluate
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS, BallNorm, Box, as_column, sizes

ROUNDINGS = 64
MIN_LENGTH = 1e-12


class Iterate(NamedTuple):
    """What a step finds at the present iterates."""

    values: Tensor  # The objective, (B,)
    gradient: Tensor  # Its gradient, like the images
    size: Tensor  # Norm of the perturbations, (B,)
    success: Tensor  # Which of them are adversarial, bool (B,)


@dataclass(frozen=True)
class MinimumNorm(ABC):
    """Search for the smallest perturbation; the classes that extend it have its steps.

    Keys of its own in the state:

        smallest      norm of the smallest adversarial so far, of the farthest corner of the box before, (B,)
        found         there was an adversarial, bool (B,)
    """

    name: str
    norm: BallNorm
    goal: Goal
    steps: int
    ball: ClassVar[None] = None
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.norm not in get_args(BallNorm):
            raise ValueError(f"norm is {self.norm!r}, allowed are {', '.join(get_args(BallNorm))}")
        if self.steps < 2:
            raise ValueError(f"steps is {self.steps}, it must be at least 2: the first iterate is the image")

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image."""
        images, goal = examples.images, self.goal.choose(setting, examples)
        state = begin(examples, goal, images, targeted=self.goal.targeted)
        return state | {
            "smallest": self.farthest(setting, images),
            "found": torch.zeros_like(state["broken"]),
            **self._own(images),
        }

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates, keeps the smallest adversarials, moves."""
        last = state["iteration"] + 1 >= self.steps
        objective = self._objective(state["goal"])
        logits, values, gradient = evaluate(model, state, objective, ~last)
        size = sizes(state["adversarial"] - state["images"], self.norm)
        success = self._succeeds(logits, state["goal"])
        smaller = success & (size < state["smallest"])
        keep(state, logits, -size.double(), smaller)
        state["smallest"] = torch.where(smaller, size, state["smallest"])
        state["found"] = state["found"] | success
        if not last.all():
            iterate = Iterate(values.to(size), gradient, size, success)
            moved = self._moved(setting, state, iterate)
            state["adversarial"] = torch.where(
                as_column(~sent(last, moved), moved), moved, state["adversarial"]
            )
        state["iteration"] += 1
        state["done"] = last

    @staticmethod
    def box(setting: Setting) -> Box:
        """Range of the iterates."""
        return PIXELS if setting.box is None else setting.box

    def farthest(self, setting: Setting, images: Tensor) -> Tensor:
        """Norm of the largest perturbation that the box allows, (B,)."""
        low, high = self.box(setting)
        return sizes(torch.maximum(images - low, high - images), self.norm)

    def annealed(self, state: State, first: float, last: float) -> Tensor:
        """A factor that falls from `first` towards `last` along a cosine, (B,)."""
        turn = (math.pi * state["iteration"].double() / self.steps).cos()
        return sent((last + (first - last) * (1 + turn) / 2).to(state["images"].dtype), state["images"])

    def _succeeds(self, logits: Tensor, goal: Tensor) -> Tensor:
        if self.goal.targeted:
            return right(logits, goal) & (wrong_by(logits, goal) <= -_slack(logits))
        return misled(logits, goal)

    @abstractmethod
    def _objective(self, goal: Tensor) -> Objective:
        """The loss to raise."""

    @abstractmethod
    def _own(self, images: Tensor) -> State:
        """Further keys of the state of new slots."""

    @abstractmethod
    def _moved(self, setting: Setting, state: State, iterate: Iterate) -> Tensor:
        """The next iterates, like the images; updates the keys of the attack's own."""


def unit(gradient: Tensor) -> Tensor:
    """Gradients divided by their L2 norm; zero ones stay."""
    length = gradient.flatten(1).square().sum(1).sqrt()
    return gradient / as_column(length.clamp(min=MIN_LENGTH), gradient)


def misled(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether another class than the label leads by more than rounding, bool (B,); so where not finite."""
    return ~right(logits, labels) & ~(wrong_by(logits, labels) < _slack(logits))


def _slack(logits: Tensor) -> Tensor:
    """ROUNDINGS roundings of the largest finite logit, float64 (B,): others are classes switched off."""
    largest = logits.abs().where(logits.isfinite(), 0).amax(1).double()
    return ROUNDINGS * torch.finfo(logits.dtype).eps * largest
