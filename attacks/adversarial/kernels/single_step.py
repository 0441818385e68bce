"""One step along the gradient at the image: the kernel of FGSM.

The arithmetic of cleverhans 4.0 (`fast_gradient_method`). Deviations: the loss is summed, not averaged; a
gradient that is not finite counts as zero.

The pass that judges the image yields its only gradient as well (`SharedStep`), unless it is averaged over
several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.expectation import SINGLE, Expectation
from assay.attacks.kernel import Examples, Forward, Objective, Setting, State, begin, record
from assay.attacks.passes import ask, evaluate, note_gradient
from assay.attacks.threat import Ball, clip_to, steepest


@dataclass(frozen=True)
class OneStep:
    """Moves by epsilon along the steepest direction. `iteration` is 0 at the image and 1 after the step."""

    name: str
    ball: Ball
    goal: Goal
    expectation: Expectation = SINGLE
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots: at the image, or after the step if the gradient is known."""
        state = begin(
            examples, self.goal.choose(setting, examples), examples.images, targeted=self.goal.targeted
        )
        if examples.gradient is not None:
            state["forward"] += 1
            state["backward"] += 1
            everything = torch.ones_like(state["done"])
            self._move(setting, state, note_gradient(state, examples.gradient, everything))
        return state

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Takes the step where still due, and judges where the engine does not."""
        objective = self.goal.objective(state["goal"])
        resting = state["iteration"] == 0
        assert resting.all() or not resting.any(), "slots leave after one step of the engine"
        if resting.any():
            self._move(setting, state, evaluate(model, state, objective, resting, self.expectation)[2])
        if setting.second_judgement:
            state["best"] = state["adversarial"]
            state["unjudged"] = torch.ones_like(state["done"])
        else:
            record(setting, state, *ask(model, state, objective))
        state["done"] = torch.ones_like(state["done"])

    def _move(self, setting: Setting, state: State, gradient: Tensor) -> None:
        images, step = state["images"], self.ball.epsilon * steepest(gradient, self.ball.norm)
        state["adversarial"] = clip_to(
            images + self.ball.project(clip_to(images + step, setting.box) - images), setting.box
        )
        state["iteration"] = state["iteration"] + 1


@dataclass(frozen=True)
class SharedStep(OneStep):
    """The same, with the gradient from the pass that judges the image."""

    def first_objective(self, setting: Setting, examples: Examples) -> Objective:
        """Objective to differentiate at the images; from the logits alone, so that one pass gives both."""
        return self.goal.objective(self.goal.choose(setting, examples))
