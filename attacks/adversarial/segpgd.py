"""SegPGD: PGD on segmentation models that attends to right pixels first, and to wrong ones more and more.

Gu et al. 2022, "SegPGD: An Effective and Efficient Adversarial Attack for Evaluating and Boosting
Segmentation Robustness", algorithm 1, T steps. Deviations: the iterate with the fewest right pixels counts
(the paper: the last); the default step is `pgd`'s, 0.15 epsilon.

    L_t = (1 - lambda) sum over right pixels of -log p_y + lambda sum over wrong pixels of -log p_y
    lambda = (t - 1) / (2 T),    x' = clip(x0 + P(x + s sign(grad L_t) - x0))
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.segmentation.ascent import ascending
from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.attacks.threat import Fraction

__all__ = ["segpgd"]

TASKS = ("segmentation",)
THREAT = {"knowledge": "white_box", "search": "iterative"}
TABLE = "attacked_segmentation"
PAPER = "Gu et al., SegPGD, ECCV 2022"
PROTOCOLS = ("pixel",)
PASSES = ("params.steps + 2", "params.steps")


def segpgd(
    *,
    epsilon: parameters.PixelRadius = 4 / 255,
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 20,
    step_size: Annotated[Fraction, Interval(gt=0, le=1000)] | None = None,
    relative_step_size: parameters.RelativeStepSize = 0.15,
    random_start: bool = True,
) -> PixelEnsemble:
    """SegPGD in Linf, for segmentation models: pixels that are wrong already weigh less at first.

    Args:
        steps: Gradient steps T.
        step_size: Change of a value in a step; None takes `relative_step_size * epsilon`.
        random_start: Begin at a random point of the ball.
    """
    return ascending(
        "segpgd",
        "segpgd",
        epsilon=epsilon,
        steps=steps,
        step_size=step_size,
        relative_step_size=relative_step_size,
        random_start=random_start,
    )
