"""PGD on segmentation models.

Madry et al. 2018, "Towards Deep Learning Models Resistant to Adversarial Attacks", section 2.1, with the loss
of Arnab et al. 2018, "On the Robustness of Semantic Segmentation Models to Adversarial Attacks": pixels that
are wrong already have the largest gradients. Parameters and defaults are `pgd`'s.

    x' = clip(x0 + P(x + s sign(g) - x0)),    g = the gradient of sum over pixels of -log p_y
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.segmentation.ascent import ascending
from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.attacks.threat import Fraction

__all__ = ["segmentation_pgd"]

TASKS = ("segmentation",)
# Accuracy stays high at any epsilon.
THREAT = {"knowledge": "white_box", "search": "iterative", "weak": True}
TABLE = "attacked_segmentation"
PAPER = "Madry et al. 2018, Towards Deep Learning Models Resistant to Adversarial Attacks"
PROTOCOLS = ("pixel",)
PASSES = ("params.steps + 2", "params.steps")


def segmentation_pgd(
    *,
    epsilon: parameters.PixelRadius = 4 / 255,
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 20,
    step_size: Annotated[Fraction, Interval(gt=0, le=1000)] | None = None,
    relative_step_size: parameters.RelativeStepSize = 0.15,
    random_start: bool = True,
) -> PixelEnsemble:
    """PGD in Linf on the cross-entropy of every pixel, for segmentation models.

    Args:
        steps: Gradient steps.
        step_size: Change of a value in a step; None takes `relative_step_size * epsilon`.
        random_start: Begin at a random point of the ball.
    """
    return ascending(
        "segmentation_pgd",
        "ce",
        epsilon=epsilon,
        steps=steps,
        step_size=step_size,
        relative_step_size=relative_step_size,
        random_start=random_start,
    )
