"""SEA, the segmentation ensemble attack: three losses, each raised on every image, and their worst case.

Croce, Singh and Hein 2024 (`segmentation/auto_pgd.py`), section 3.6: 300 steps of Auto-PGD with a shrinking
ball for each of MCE, MCE-Bal and JS. `service.metrics.tables.worst_case`: pixel accuracy takes the worst loss
of each image, mIoU a set rule. Every loss gets every image, even if another left no pixel right: mIoU depends
on the classes predicted for wrong pixels.

    mce        -log p_y of the pixels that are right
    mce_bal    the same, each divided by the training pixels of its class
    js         log 2 + (p_y log p_y - (1 + p_y) log(1 + p_y)) / 2    of every pixel
    each raised by Auto-PGD with radius 2, 1.5 and 1 times epsilon
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.segmentation.auto_pgd import ShrinkingAutoPGD
from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.attacks.threat import Ball

__all__ = ["sea"]

TASKS = ("segmentation",)
THREAT = {
    "knowledge": "white_box",
    "search": "ensemble",
    "upper_bound": "SEA gives an upper bound on true robustness, and has no attack without gradients: where"
    " gradients are masked it finds too little. An adaptive attack, made for this model, is needed before it"
    " is called robust",
}
TABLE = "attacked_segmentation"
PAPER = "Croce et al., Towards Reliable Evaluation of Robust Semantic Segmentation Models, ECCV 2024"
PROTOCOLS = ("pixel",)
PASSES = ("3 * (params.steps + 4)", "3 * params.steps")


def sea(
    *, epsilon: parameters.PixelRadius = 4 / 255, steps: Annotated[int, Interval(ge=1, le=100_000)] = 300
) -> PixelEnsemble:
    """Worst case in Linf over three losses of Auto-PGD with a shrinking ball, for segmentation models.

    Args:
        steps: Gradient steps for each loss, split 3 : 3 : 4 over radii of 2, 1.5 and 1 times epsilon.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}, it must be at least 1")
    # The name of the attack with one loss, so that its draws are the same alone and here.
    kernel = partial(ShrinkingAutoPGD, "segmentation_apgd", ball=Ball("Linf", epsilon), steps=steps, rho=0.75)
    return PixelEnsemble("sea", kernel, ("mce", "mce_bal", "js"))
