"""Uniform random noise: the weakest attack, and a check on the others.

In Linf as in cleverhans 4.0 (`noise`), each pixel moves by U(-epsilon, epsilon). In L2, where cleverhans
raises, the perturbation is uniform in the ball: a normal direction at radius epsilon * u^(1/dimension).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from attacks.adversarial.goal import Goal
from attacks.adversarial.library import cleverhans_noise
from attacks.kernel import Attack, Examples, Forward, Setting, State, begin, evaluate, record
from attacks.threat import Ball, Fraction, Norm, clip_to

__all__ = ["uniform_noise"]

TASKS = ("classification",)
PAPER = "Athalye et al. 2018, Obfuscated Gradients Give a False Sense of Security"
PASSES = ("params.draws + 1", "0")
RULES = (
    ("params.norm != 'Linf' or params.epsilon <= 1", "epsilon is at most 1 in Linf: pixels lie in [0, 1]"),
    ("params.backend != 'cleverhans' or params.norm == 'Linf'", "cleverhans has uniform noise in Linf only"),
)


def uniform_noise(
    *,
    epsilon: Annotated[Fraction, Interval(ge=0, le=1000)] = 0.3,
    norm: Norm = "Linf",
    draws: Annotated[int, Interval(ge=1, le=100_000)] = 1,
    backend: Literal["native", "cleverhans"] = "native",
) -> Attack:
    """Random perturbations that are uniform in the ball of radius epsilon.

    Args:
        epsilon: Radius: in pixel units in `pixel`, in units of the normalised images in `paper`.
        norm: Norm of the ball.
        draws: How many perturbations are tried; an example is broken if one of them is misclassified
            (`pixel`), or the one with the highest loss counts (`paper`).
        backend: Our kernel, or the library's function.

    Raises:
        ValueError: If a value is out of its range.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws}, it must be at least 1")
    ball = Ball(norm, epsilon)
    return cleverhans_noise(ball, draws) if backend == "cleverhans" else _UniformNoise(ball, draws)


@dataclass(frozen=True)
class _UniformNoise:
    ball: Ball
    draws: int
    name: ClassVar[str] = "uniform_noise"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = False

    def start(self, setting: Setting, examples: Examples) -> State:
        """Returns the state of new slots, at the image."""
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Draws and evaluates one perturbation for every slot."""
        state["adversarial"] = clip_to(state["images"] + self._perturbation(setting, state), setting.box)
        none = torch.zeros_like(state["done"])
        logits, values, _ = evaluate(model, state, Goal().objective(state["goal"]), none)
        record(setting, state, logits, values, ~none)
        state["restart"] += 1
        state["done"] = state["restart"] >= self.draws

    def _perturbation(self, setting: Setting, state: State) -> Tensor:
        images, ids, restart = state["images"], setting.ids_of(state["row"]), state["restart"].tolist()
        shape, dtype, device = tuple(images.shape[1:]), images.dtype, images.device
        if self.ball.norm == "Linf":
            draw = setting.randomness.uniform(ids, shape, restart=restart, dtype=dtype, device=device)
            return self.ball.uniform_point(draw, draw)
        direction = setting.randomness.normal(ids, shape, restart=restart, dtype=dtype, device=device)
        radius = setting.randomness.uniform(
            ids, (), restart=restart, purpose="radius", dtype=dtype, device=device
        )
        return self.ball.uniform_point(direction, radius)
