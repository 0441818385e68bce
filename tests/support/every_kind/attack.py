"""Sign steps down the loss: a gradient attack that breaks nothing, as one does whose gradients are masked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval

from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import evaluate
from assay.attacks.threat import Ball, Fraction, as_column, clip_to

__all__ = ["downhill"]

TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative"}
TABLE = "attack"
PASSES = ("params.steps + 2", "params.steps")


def downhill(
    *,
    epsilon: Annotated[Fraction, Interval(ge=0, le=1)] = 8 / 255,
    steps: Annotated[int, Interval(ge=1, le=10_000)] = 2,
) -> Attack:
    """Gradient sign steps the wrong way.

    Args:
        epsilon: Linf radius, in pixel units.
        steps: Gradient steps.
    """
    return _Descent(Ball("Linf", epsilon), steps)


@dataclass(frozen=True)
class _Descent:
    ball: Ball
    steps: int
    name: ClassVar[str] = "downhill"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    def start(self, setting: Setting, examples: Examples) -> State:
        """Returns the state of new slots, at the image."""
        del setting
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates and moves those that have steps left."""
        final = state["iteration"] >= self.steps
        logits, values, gradient = evaluate(model, state, Goal().objective(state["goal"]), ~final)
        record(setting, state, logits, values, final)
        step = self.ball.epsilon / self.steps * gradient.sign()
        moved = clip_to(
            state["images"] + self.ball.project(state["adversarial"] - step - state["images"]), setting.box
        )
        moving = as_column((~final).to(gradient.device), gradient)
        state["adversarial"] = torch.where(moving, moved, state["adversarial"])
        state["iteration"] += ~final
        state["done"] |= final
