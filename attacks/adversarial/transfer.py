"""Attacks another model, and evaluates the result on the evaluated model.

Papernot et al. 2016, "Transferability in Machine Learning"; Carlini et al. 2019, "On Evaluating Adversarial
Robustness", section 4.3: a transfer attack that breaks more than a direct one shows masked gradients.

    x' = attack(surrogate, x),    accuracy of the evaluated model on x'

The other model is attacked as in the `paper` protocol, but within [0, 1]: all steps, without early exit,
to the final iterate of the restart with the highest loss there. Only that image is judged by the evaluated
model. Passes of both models are counted. In a job with the protocol `paper` it runs as `pixel`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, ask, begin, record
from assay.attacks.threat import PIXELS, Ball, Fraction, Norm

__all__ = ["transfer"]

TASKS = ("classification",)
THREAT = {"knowledge": "transfer", "search": "iterative"}
TABLE = "attack"
PAPER = "Papernot et al. 2016, Transferability in Machine Learning"
# Judged by the worst case within [0, 1], under any protocol of the job.
PROTOCOLS = ("pixel",)
PASSES = ("params.restarts * (params.steps + 1) + 3", "params.restarts * params.steps")
RULES = (
    ("params.norm != 'Linf' or params.epsilon <= 1", "epsilon is at most 1 in Linf: pixels lie in [0, 1]"),
    ("params.attack != 'fgsm' or params.steps == 1 and params.restarts == 1", "fgsm is one step: steps 1"),
)


def transfer(
    *,
    job: Annotated[str, "job"],
    epsilon: Annotated[Fraction, Interval(ge=0, le=1000)] = 8 / 255,
    norm: Norm = "Linf",
    attack: Literal["pgd", "fgsm"] = "pgd",
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 40,
    restarts: Annotated[int, Interval(ge=1, le=10_000)] = 1,
) -> Transfer:
    """Adversarial examples of another model.

    Args:
        job: Id of the training job that the other model comes from, with as many classes and channels and the
            same image size; an unfinished one is waited for.
        epsilon: Radius of the ball, in pixel units.
        norm: Norm of the ball.
        attack: What the other model is attacked with.
        steps: Gradient steps in each restart; 1 for fgsm.
        restarts: Random starts of pgd.

    Raises:
        ValueError: If a value is out of its range.
    """
    if attack == "fgsm":
        return Transfer(job, fgsm(epsilon=epsilon, norm=norm))
    return Transfer(job, pgd(epsilon=epsilon, norm=norm, steps=steps, restarts=restarts))


@dataclass(frozen=True)
class Transfer:
    """The attack as a kernel whose one step is one whole attack on the other model.

    Attributes:
        job: Id of the other model's training job.
        inner: The attack on it.
        source: That model; set later, by `on`.
    """

    job: str
    inner: Attack
    source: Forward | None = None
    name: ClassVar[str] = "transfer"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    @property
    def ball(self) -> Ball | None:
        """The perturbations that are allowed."""
        return self.inner.ball

    def on(self, source: Forward) -> Transfer:
        """The same attack with its other model."""
        return replace(self, source=source)

    def start(self, setting: Setting, examples: Examples) -> State:
        """Returns the state of new slots, at the image."""
        del setting
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """One attack on the other model, and the evaluated model's answer to its result."""
        attacked = self._attacked(setting, state)
        state["adversarial"] = attacked["best"]
        for key in ("forward", "backward"):
            state[key] = state[key] + attacked[key]
        for key in ("seen_gradient", "zero_gradient", "nonfinite_gradient"):
            state[key] = state[key] | attacked[key]
        logits, values = ask(model, state, Goal().objective(state["goal"]))
        record(setting, state, logits, values)
        state["done"] = torch.ones_like(state["done"])

    def _attacked(self, setting: Setting, state: State) -> State:
        if self.source is None:
            raise ValueError(f"the model of job {self.job} is missing")
        images: Tensor = state["images"]
        logits = self.source(images)
        there = Setting(setting.ids, setting.randomness, box=PIXELS, final_iterate=True)
        inner = self.inner.start(there, Examples(state["row"], images, state["goal"], state["truth"], logits))
        inner["forward"] = inner["forward"] + 1
        while not inner["done"].all():
            self.inner.step(there, self.source, inner)
        return inner
