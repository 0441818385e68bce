"""BPDA: projected gradient descent with the gradients of another model.

Athalye, Carlini and Wagner 2018, "Obfuscated Gradients Give a False Sense of Security", section 4.1.2
(backward pass differentiable approximation): the gradient of a model without the defence.

    forward    f(x), the evaluated model, which alone decides what is broken
    backward   the Jacobian of g at x, the model that `job` names
    loss and steps as in `pgd`: x' = clip(x0 + P(x + s sign(J_g(x)^T dL/df(x)) - x0))

g has as many classes and channels and takes images of the same size: the defended model without its defence,
or a copy trained to answer alike, from a training job or an upload. A gradient takes a forward pass of both
models. In a job with the protocol `paper` it runs as `pixel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, cast

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.losses import LossName
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State
from assay.attacks.passes import StraightThrough, in_parts_of
from assay.attacks.threat import Ball

__all__ = ["bpda"]

TASKS = ("classification",)
THREAT = {"knowledge": "transfer", "search": "iterative"}
TABLE = "attack"
PAPER = "Athalye et al. 2018, Obfuscated Gradients Give a False Sense of Security"
# Under any protocol of the job.
PROTOCOLS = ("pixel",)
PASSES = ("params.restarts * (2 * params.steps + 1) + 1", "params.restarts * params.steps")
RULES = (parameters.LINF_RULE, parameters.DLR_RULE)


def bpda(
    *,
    job: Annotated[str, "job"],
    epsilon: parameters.BallRadius = 8 / 255,
    norm: parameters.L2OrLinf = "Linf",
    steps: parameters.Steps = 40,
    relative_step_size: parameters.RelativeStepSize = 0.1,
    restarts: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    loss: LossName = "ce",
) -> Bpda:
    """PGD on the evaluated model with another model's gradients.

    Args:
        job: The model that gives the gradients: id of its training job, or checkpoint:NAME of an upload. It
            has as many classes and channels and the same image size; an unfinished job is waited for.
        restarts: How many random starts; an example stops at the first success.
        loss: What is raised, as in `pgd`.
    """
    inner = pgd(
        epsilon=epsilon,
        norm=norm,
        steps=steps,
        relative_step_size=relative_step_size,
        restarts=restarts,
        loss=loss,
    )
    return Bpda((job,), inner)


@dataclass(frozen=True)
class Bpda:
    """PGD whose model has the gradients of another."""

    jobs: tuple[str, ...]
    inner: Attack
    source: Forward | None = None
    name: ClassVar[str] = "bpda"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    @property
    def ball(self) -> Ball | None:
        """The perturbations that are allowed."""
        return self.inner.ball

    def on(self, sources: Sequence[Forward]) -> Bpda:
        """The same attack with its other model."""
        return replace(self, source=sources[0])

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the first random start."""
        return self.inner.start(setting, examples)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """A step of PGD."""
        source = self.source
        if source is None:
            raise ValueError(f"the model of {self.jobs[0]} is missing")

        def mixed(points: Tensor) -> Tensor:
            if not (torch.is_grad_enabled() and points.requires_grad):
                return model(points)
            with torch.no_grad():
                values = model(points.detach())
            return cast(Tensor, StraightThrough.apply(source(points), values))

        gradients = state["backward"].clone()
        self.inner.step(setting, in_parts_of(model, mixed), state)
        state["forward"] = state["forward"] + state["backward"] - gradients
