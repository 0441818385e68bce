"""The momentum iterative fast gradient sign method.

Dong et al. 2018, "Boosting Adversarial Attacks with Momentum", equations 6 and 7: the gradients, each divided
by its L1 norm, are accumulated with a decay, and each step follows the sign of the sum. The step is
epsilon / steps, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import evaluate
from assay.attacks.threat import Ball, Fraction, as_column, clip_to

__all__ = ["mifgsm"]

TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative"}
TABLE = "attack"
PAPER = "Dong et al. 2018, Boosting Adversarial Attacks with Momentum"
# One pass for the clean image, one for each iterate, the first included.
PASSES = ("params.steps + 2", "params.steps")

MIN_NORM = 1e-12


def mifgsm(
    *,
    epsilon: Annotated[Fraction, Interval(ge=0, le=1)] = 8 / 255,
    steps: Annotated[int, Interval(ge=1, le=10_000)] = 10,
    decay: Annotated[float, Interval(ge=0, le=10)] = 1.0,
) -> Attack:
    """Gradient sign steps along a decaying sum of gradients.

    Args:
        epsilon: Linf radius, in pixel units.
        steps: Gradient steps.
        decay: Weight of the accumulated gradients at each step; 0 forgets them.
    """
    return _MomentumAscent(Ball("Linf", epsilon), steps, decay)


@dataclass(frozen=True)
class _MomentumAscent:
    ball: Ball
    steps: int
    decay: float
    name: ClassVar[str] = "mifgsm"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    def start(self, setting: Setting, examples: Examples) -> State:
        """Returns the state of new slots, at the image."""
        del setting  # no random start
        momentum = torch.zeros_like(examples.images)
        return begin(examples, examples.labels, examples.images) | {"momentum": momentum}

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates and moves those that have steps left."""
        final = state["iteration"] >= self.steps
        logits, values, gradient = evaluate(model, state, Goal().objective(state["goal"]), ~final)
        record(setting, state, logits, values, final)
        moving = as_column((~final).to(gradient.device), gradient)
        momentum = self.decay * state["momentum"] + _unit_l1(gradient)
        moved = self._moved(setting, state, momentum)
        state["momentum"] = torch.where(moving, momentum, state["momentum"])
        state["adversarial"] = torch.where(moving, moved, state["adversarial"])
        state["iteration"] += ~final
        state["done"] |= final

    def _moved(self, setting: Setting, state: State, momentum: Tensor) -> Tensor:
        step = self.ball.epsilon / self.steps * momentum.sign()
        perturbation = self.ball.project(state["adversarial"] + step - state["images"])
        return clip_to(state["images"] + perturbation, setting.box)


def _unit_l1(gradient: Tensor) -> Tensor:
    norms = gradient.abs().flatten(1).sum(1).clamp(min=MIN_NORM)
    return gradient / as_column(norms, gradient)
