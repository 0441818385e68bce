"""Uniform random noise: the weakest attack, and a check on the others.

In Linf as in cleverhans 4.0 (`noise`). In L2, where cleverhans raises, uniform in the ball.

    Linf    x' = clip(x + u),    u ~ U(-epsilon, epsilon) in every value
    L2      x' = clip(x + epsilon u^(1/dimension) z / |z|_2),    z ~ N(0, 1), u ~ U(0, 1)
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.noise import Noise, draw
from assay.attacks.adversarial.libraries.cleverhans import cleverhans_noise
from assay.attacks.kernel import Attack, Setting, State
from assay.attacks.threat import Ball

__all__ = ["uniform_noise"]

ALSO = ("uniform", "random noise")
TASKS = ("classification",)
THREAT = {"knowledge": "noise"}
TABLE = "attack"
PAPER = "Athalye et al. 2018, Obfuscated Gradients Give a False Sense of Security"
PASSES = ("params.draws + 1", "0")
RULES = (
    parameters.LINF_RULE,
    ("params.backend != 'cleverhans' or params.norm == 'Linf'", "cleverhans has uniform noise in Linf only"),
)


def uniform_noise(
    *,
    epsilon: parameters.ProtocolRadius = 0.3,
    norm: parameters.NormOfBall = "Linf",
    draws: parameters.Draws = 1,
    backend: Literal["native", "cleverhans"] = "native",
) -> Attack:
    """Random perturbations that are uniform in the ball of radius epsilon.

    Args:
        backend: Our kernel, or the library's function.
    """
    ball = Ball(norm, epsilon)

    def perturbation(setting: Setting, state: State) -> Tensor:
        if norm == "Linf":
            cube = draw(setting, state, "uniform")
            return ball.uniform_point(cube, cube)
        radius = draw(setting, state, "uniform", (), purpose="radius")
        return ball.uniform_point(draw(setting, state, "normal"), radius)

    ours = Noise("uniform_noise", ball, draws, perturbation)
    return cleverhans_noise(ball, draws) if backend == "cleverhans" else ours
