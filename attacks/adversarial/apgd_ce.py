"""Auto-PGD, the first attack of AutoAttack.

Croce and Hein 2020, algorithm 1. The defaults are AutoAttack's, version "standard"; "rand" has eot = 20.
Source and deviations: `kernels/auto_pgd.py`.

    x_{k+1} = P(x_k + 0.75 (P(x_k + s direction(gradient)) - x_k) + 0.25 (x_k - x_{k-1}))
    s       = 2 epsilon at first, halved, from the best point so far, where the loss stalls
    P projects onto the ball and the range of pixels;    direction = sign in Linf, g / |g|_2 in L2
    loss    = -log softmax(z)_y
"""

from __future__ import annotations

from assay.attacks import parameters
from assay.attacks.adversarial.kernels import auto_pgd_by_norm
from assay.attacks.adversarial.kernels.auto_pgd import Backend
from assay.attacks.adversarial.kernels.losses import Untargeted
from assay.attacks.expectation import NATIVE_ONLY, PIXEL_ONLY, Expectation
from assay.attacks.kernel import Attack
from assay.attacks.threat import IMAGE_OR_SERIES, lp_ball

__all__ = ["apgd_ce"]

TASKS = ("classification", "series")
THREAT = {"knowledge": "white_box", "search": "iterative", "batch_draws": {"compatible": "True"}}
TABLE = "attack"
FACTS = {"loss": "ce"}
PAPER = auto_pgd_by_norm.PAPER
PASSES = auto_pgd_by_norm.PASSES
RULES = (*IMAGE_OR_SERIES, auto_pgd_by_norm.STEPS_RULE, PIXEL_ONLY, NATIVE_ONLY)


def apgd_ce(
    *,
    epsilon: parameters.Epsilon = 8 / 255,
    norm: parameters.StepNorm = "Linf",
    steps: parameters.Steps = 100,
    restarts: parameters.Restarts = 1,
    rho: parameters.Rho = 0.75,
    eot: parameters.AnyEot = 1,
    eot_average: parameters.EotAverage = "losses",
    judgement: parameters.Judging = "expected",
    model_draws: parameters.ModelDraws = 100,
    backend: Backend = "native",
) -> Attack:
    """Auto-PGD on the cross-entropy: momentum, and a step size that is halved where it gets nowhere."""
    return auto_pgd_by_norm.auto_pgd(
        "apgd_ce",
        Untargeted("ce"),
        lp_ball(norm, epsilon),
        steps=steps,
        restarts=restarts,
        rho=rho,
        expectation=Expectation(eot, eot_average, judgement, model_draws),
        backend=backend,
    )
