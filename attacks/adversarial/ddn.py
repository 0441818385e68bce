"""DDN, decoupled direction and norm.

Rony et al. 2019, "Decoupling Direction and Norm for Efficient Gradient-Based L2 Adversarial Attacks and
Defenses", algorithm 1; deviations: `decoupled_direction.py`.

    d' = d + a g / |g|_2,     a falls from 1 to 0.01;     d the perturbation, g the cross-entropy's gradient
    e' = (1 - gamma) e if x + d is misclassified, else (1 + gamma) e
    x' = clip(x + e' d' / |d'|_2)

Each example runs all steps; one run gives accuracy at every radius.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.decoupled_direction import DecoupledDirection
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack

__all__ = ["ddn"]

TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative", "norm": "L2", "minimum_norm": True}
TABLE = "attack"
PAPER = (
    "Rony et al. 2019, Decoupling Direction and Norm for Efficient Gradient-Based L2 Adversarial Attacks and"
    " Defenses"
)
PASSES = ("params.steps + 1", "params.steps - 1")
# Within the range of pixels, under any protocol of the job.
PROTOCOLS = ("pixel",)
RULES = parameters.TARGET_RULES


def ddn(
    *,
    norm: Annotated[Literal["L2"], "strength"] = "L2",
    steps: parameters.Iterates = 100,
    gamma: Annotated[float, Interval(gt=0, lt=1)] = 0.05,
    first_norm: Annotated[float, Interval(gt=0, le=1000)] = 1.0,
    levels: Annotated[int, Interval(ge=2, le=65_536)] | None = None,
    targeted: parameters.NearestTarget = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
    area_to: parameters.AreaTo = None,
) -> Attack:
    """The smallest L2 perturbation: gradient directions, and a norm that shrinks where they succeed.

    Accuracy is the share of examples for which nothing was found at all; the distances are the result.

    Args:
        norm: Of the perturbation.
        gamma: Share by which the norm shrinks or grows in a step.
        first_norm: Norm of the first perturbation, in pixel units. Norms below first_norm times
            (1 - gamma) ** steps are out of reach: take more steps where distances pile up there.
        levels: Values that a pixel may take, such as 256 in the authors' code; None for any.
    """
    del area_to  # read by the summary
    if norm != "L2":
        raise ValueError(f"norm is {norm!r}, allowed is L2")
    goal = Goal(targeted, target, target_class)
    return DecoupledDirection("ddn", norm, goal, steps, gamma=gamma, first_norm=first_norm, levels=levels)
