"""Sigma-zero.

Cina et al. 2025, "sigma-zero: Gradient-based Optimization of l0-norm Adversarial Examples", algorithm 1;
formulas in full: `kernels/sigma_zero.py`.

    minimise  max(z_y - max_{i != y} z_i, 0) + 1/D sum_i d_i^2 / (d_i^2 + sigma),    D values of an image
    and set values below a threshold to 0, which rises where x + d is misclassified and falls elsewhere

It has no targets. Each example runs all steps; one run gives accuracy at every radius.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.sigma_zero import SigmaZero
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack
from assay.attacks.threat import Fraction

__all__ = ["sigma_zero"]

TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative", "norm": "L0", "minimum_norm": True}
TABLE = "attack"
PAPER = "Cina et al. 2025, sigma-zero: Gradient-based Optimization of l0-norm Adversarial Examples"
PASSES = ("params.steps + 1", "params.steps - 1")
# Within the range of pixels, under any protocol of the job.
PROTOCOLS = ("pixel",)


def sigma_zero(
    *,
    norm: Literal["L0"] = "L0",
    steps: parameters.Iterates = 1000,
    step_size: Annotated[Fraction, Interval(gt=0, le=1000)] = 1.0,
    sigma: Annotated[float, Interval(gt=0, le=1000)] = 1e-3,
    threshold: Annotated[float, Interval(ge=0, le=1)] = 0.3,
    area_to: parameters.AreaTo = None,
) -> Attack:
    """The fewest changed values: a hinge, a smooth count of the changes, and a threshold below which they go.

    Accuracy is the share of examples for which nothing was found at all; the distances are the result.

    Args:
        norm: Of the perturbation: it counts the values that change, of every channel.
        step_size: Of Adam's first step, in pixel units; it falls to a tenth of that.
        sigma: Smoothness of the count; smaller is nearer to a count, and harder to descend.
        threshold: Changes that are smaller become 0, at first.
    """
    del area_to  # read by the summary
    if norm != "L0":
        raise ValueError(f"norm is {norm!r}, allowed is L0")
    return SigmaZero("sigma_zero", norm, Goal(), steps, step_size=step_size, sigma=sigma, threshold=threshold)
