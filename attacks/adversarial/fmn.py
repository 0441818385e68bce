"""FMN, fast minimum norm: the smallest perturbation in L0, L1, L2 or Linf in few steps.

Pintor et al. 2021, "Fast Minimum-norm Adversarial Attacks through Adaptive Norm Constraints", algorithm 1;
formulas in full: `fast_minimum_norm.py`.

    d' = P(d + a g / |g|_2),     d the perturbation, g the gradient of max_{i != y} z_i - z_y
    P projects onto the ball of radius e, then onto the range of pixels
    e shrinks where x + d is misclassified and grows elsewhere, by less and less

Each example runs all steps; one run gives accuracy at every radius.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.fast_minimum_norm import FastMinimumNorm
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack
from assay.attacks.threat import BallNorm, Fraction

__all__ = ["fmn"]

TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative", "minimum_norm": True}
TABLE = "attack"
PAPER = "Pintor et al. 2021, Fast Minimum-norm Adversarial Attacks through Adaptive Norm Constraints"
PASSES = ("params.steps + 1", "params.steps - 1")
# Within the range of pixels, under any protocol of the job.
PROTOCOLS = ("pixel",)
RULES = parameters.TARGET_RULES


def fmn(
    *,
    norm: Annotated[BallNorm, "strength"] = "Linf",
    steps: parameters.Iterates = 100,
    step_size: Annotated[Fraction, Interval(gt=0, le=1000)] = 1.0,
    gamma: Annotated[float, Interval(gt=0, lt=1)] = 0.05,
    overshoot: bool = True,
    targeted: parameters.NearestTarget = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
    area_to: parameters.AreaTo = None,
) -> Attack:
    """The smallest perturbation: steps projected onto a ball whose radius comes to the boundary.

    Accuracy is the share of examples for which nothing was found at all; the distances are the result.

    Args:
        norm: Of the perturbation; L0 counts the values that change, of every channel.
        step_size: L2 length of the first step, in pixel units; it falls to a hundredth of that. The authors
            take 1, and more in L1 and L0 (10), less in Linf.
        gamma: Share by which the radius changes in the first step; it falls to 0.001.
        overshoot: Let the radius grow by that share at least until the boundary was crossed once. Without it,
            as in the authors' code, each step may end short of the boundary of a smooth model.
    """
    del area_to  # read by the summary
    goal = Goal(targeted, target, target_class)
    return FastMinimumNorm("fmn", norm, goal, steps, step_size=step_size, gamma=gamma, overshoot=overshoot)
