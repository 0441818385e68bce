"""Auto-PGD, the second attack of AutoAttack.

Croce and Hein 2020, algorithm 1. One run for each of the wrong classes with the highest logits on the
unattacked image, the highest first; an example stops at the first success, with any wrong class. The defaults
are AutoAttack's, version "standard". Source and deviations: `kernels/auto_pgd.py`.

    x_{k+1} = P(x_k + 0.75 (P(x_k + s direction(gradient)) - x_k) + 0.25 (x_k - x_{k-1}))
    s       = 2 epsilon at first, halved, from the best point so far, where the loss stalls
    P projects onto the ball and the range of pixels;    direction = sign in Linf, g / |g|_2 in L2
    loss    = -(z_y - z_t) / (z_1 - (z_3 + z_4) / 2),    t the target, z_1 >= z_2 >= ... the ordered logits
            or z_t - z_y with `loss` margin

`order` malt (Melamed et al. 2024; `kernels/malt.py`) begins with the classes that a linear model of the
network at the image would reach first, among the `candidates` classes with the highest logits, at a backward
pass for each.

    d_t = (z_y - z_t) / |grad_x (z_t - z_y)|_q,    smallest first,    q = 1 in Linf, 2 in L2
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels import auto_pgd_by_norm
from assay.attacks.adversarial.kernels.auto_pgd import Backend
from assay.attacks.adversarial.kernels.losses import Targeted, TargetedLossName
from assay.attacks.kernel import Attack
from assay.attacks.threat import IMAGE_OR_SERIES, lp_ball

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
PAPER = auto_pgd_by_norm.PAPER
# Maximum over backends: the native kernel takes one pass fewer per run. Fewer classes mean fewer runs.
PASSES = (
    "params.targets * params.restarts * (params.steps + 2 + 2 * (params.norm == 'L1')) + 1"
    " + (params.order == 'malt')",
    "params.targets * params.restarts * (params.steps + 1 + 2 * (params.norm == 'L1'))"
    " + params.candidates * (params.order == 'malt')",
)
RULES = (
    *IMAGE_OR_SERIES,
    auto_pgd_by_norm.STEPS_RULE,
    (
        "params.loss != 'dlr' or data.classes >= 4",
        "the targeted DLR loss needs at least 4 classes; loss margin needs 2",
    ),
    (
        "params.backend != 'pyautoattack' or params.loss == 'dlr' and params.order == 'logits'",
        "the library has the loss dlr and the order of the logits only",
    ),
    (
        "params.order == 'logits' or params.candidates >= params.targets",
        "candidates must be at least targets",
    ),
)


def apgd_t(
    *,
    epsilon: parameters.Epsilon = 8 / 255,
    norm: parameters.StepNorm = "Linf",
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    targets: Annotated[int, Interval(ge=1, le=100_000)] = 9,
    restarts: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    rho: parameters.Rho = 0.75,
    loss: TargetedLossName = "dlr",
    order: Literal["logits", "malt"] = "logits",
    candidates: Annotated[int, Interval(ge=1, le=100_000)] = 9,
    backend: Backend = "native",
) -> Attack:
    """Auto-PGD on the targeted DLR loss, for one wrong class after the other.

    Args:
        steps: Gradient steps in each run.
        targets: How many wrong classes are tried; all of them where there are fewer.
        restarts: How many random starts for each of them; an example stops at the first success (`pixel`).
        loss: The targeted DLR loss, or the difference of the two logits.
        order: Targets by their logits on the unattacked image, or by their distance in a linear model.
        candidates: Among how many classes `malt` chooses its targets; all wrong ones where there are fewer.
    """
    if targets < 1:
        raise ValueError(f"targets is {targets}, it must be at least 1")
    if order == "malt" and candidates < targets:
        raise ValueError(f"candidates is {candidates}, it must be at least targets, {targets}")
    if backend == "pyautoattack" and (loss, order) != ("dlr", "logits"):
        raise ValueError(f"pyautoattack has the loss dlr and the order logits, not {loss} and {order}")
    return auto_pgd_by_norm.auto_pgd(
        "apgd_t",
        Targeted(targets, loss, candidates if order == "malt" else 0),
        lp_ball(norm, epsilon),
        steps=steps,
        restarts=restarts,
        rho=rho,
        backend=backend,
    )
