"""Auto-PGD on the targeted difference of logits ratio (DLR) loss: the second attack of AutoAttack.

Croce and Hein 2020, "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-free
Attacks", algorithm 1. One run for each of the wrong classes with the highest logits on the unattacked image,
the highest first; an example stops at the first success, with any wrong class. The defaults are
those of AutoAttack, version "standard". See `auto_pgd.py` for what differs from the library's code.

    x_{k+1} = P(x_k + 0.75 (P(x_k + s direction(gradient)) - x_k) + 0.25 (x_k - x_{k-1}))
    s       = 2 epsilon at first, halved, from the best point so far, where the loss stalls
    P projects onto the ball and the range of pixels;    direction = sign in Linf, g / |g|_2 in L2
    loss    = -(z_y - z_t) / (z_1 - (z_3 + z_4) / 2),    t the target, z_1 >= z_2 >= ... the ordered logits
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks.adversarial.kernels.auto_pgd import Backend, auto_pgd
from assay.attacks.adversarial.kernels.losses import TargetedDLR
from assay.attacks.kernel import Attack
from assay.attacks.threat import IMAGE_OR_SERIES, Ball, Fraction, Norm

__all__ = ["apgd_t"]

TASKS = ("classification", "series")
THREAT = {
    "knowledge": "white_box",
    "search": "iterative",
    "needs_classes": 4,
    "targets": 9,
    "batch_draws": {"compatible": "True"},
}
TABLE = "attack"
PAPER = (
    "Croce and Hein 2020, Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse "
    "Parameter-free Attacks"
)
# Maximum over backends: the native kernel takes one pass fewer per run. Fewer classes mean fewer runs.
PASSES = (
    "params.targets * params.restarts * (params.steps + 2) + 1",
    "params.targets * params.restarts * (params.steps + 1)",
)
RULES = (
    *IMAGE_OR_SERIES,
    ("data.classes >= 4", "the targeted DLR loss needs at least 4 classes"),
)


def apgd_t(
    *,
    epsilon: Annotated[Fraction, Interval(ge=0, le=1000)] = 8 / 255,
    norm: Norm = "Linf",
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    targets: Annotated[int, Interval(ge=1, le=100_000)] = 9,
    restarts: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    rho: Annotated[float, Interval(ge=0, le=1)] = 0.75,
    backend: Backend = "native",
) -> Attack:
    """Auto-PGD on the targeted DLR loss, for one wrong class after the other.

    Args:
        epsilon: Radius: in pixel units in `pixel`, in units of the normalised images in `paper`; of time
            series in standard deviations of each feature over the training set.
        norm: Norm of the ball and of the steps.
        steps: Gradient steps in each run.
        targets: How many wrong classes are tried; all of them where there are fewer.
        restarts: How many random starts for each of them; an example stops at the first success (`pixel`).
        rho: The step size is halved where the loss rose in at most this share of the steps since the last
            checkpoint.
        backend: Our kernel with draws of its own, our kernel with the library's draws, or the library.

    Raises:
        ValueError: If a value is out of its range, or there are fewer than 4 classes.
    """
    if targets < 1:
        raise ValueError(f"targets is {targets}, it must be at least 1")
    return auto_pgd(
        "apgd_t",
        TargetedDLR(targets),
        Ball(norm, epsilon),
        steps=steps,
        restarts=restarts,
        rho=rho,
        backend=backend,
    )
