"""One of the attacks of SEA alone: Auto-PGD on one pixel loss, with a ball that shrinks to epsilon.

Croce, Singh and Hein 2024 (`segmentation/auto_pgd.py`), sections 3.4 and 3.5. With the same seed a loss gives
the same result as in `sea`.

    mce        -log p_y of the pixels that are right
    mce_bal    the same, each divided by the training pixels of its class
    js         log 2 + (p_y log p_y - (1 + p_y) log(1 + p_y)) / 2    of every pixel
    ce         -log p_y of every pixel
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.segmentation.auto_pgd import ShrinkingAutoPGD
from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.attacks.threat import Ball

__all__ = ["segmentation_apgd"]

TASKS = ("segmentation",)
THREAT = {"knowledge": "white_box", "search": "iterative"}
TABLE = "attacked_segmentation"
PAPER = "Croce et al., Towards Reliable Evaluation of Robust Semantic Segmentation Models, ECCV 2024"
PROTOCOLS = ("pixel",)
PASSES = ("params.steps + 4", "params.steps")


def segmentation_apgd(
    *,
    epsilon: parameters.PixelRadius = 4 / 255,
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 300,
    loss: Literal["mce", "mce_bal", "js", "ce"] = "mce",
    rho: Annotated[float, Interval(ge=0, le=1)] = 0.75,
) -> PixelEnsemble:
    """Auto-PGD in Linf on one pixel loss, with radius 2, 1.5 and 1 times epsilon, for segmentation models.

    Args:
        steps: Gradient steps, split 3 : 3 : 4 over the three radii.
        loss: `mce` is the cross-entropy of the pixels that are right, `mce_bal` the same with each class
            weighed by the inverse number of its training pixels, `js` the Jensen-Shannon divergence from the
            label, `ce` the plain cross-entropy.
        rho: Share of a window's steps up to which rises of the loss are too few, and the step is halved.
    """
    if steps < 1 or not 0 <= rho <= 1:
        raise ValueError(f"steps is {steps} and rho {rho}: at least 1, and from 0 to 1")
    kernel = partial(ShrinkingAutoPGD, "segmentation_apgd", ball=Ball("Linf", epsilon), steps=steps, rho=rho)
    return PixelEnsemble("segmentation_apgd", kernel, (loss,))
