"""Auto-PGD on a loss of choice.

Croce and Hein 2020 (`kernels/auto_pgd.py`), algorithm 1, which names no loss. With `loss` ce or dlr it is
`apgd_ce` or `apgd_dlr` with random starts of its own; those two keep AutoAttack's names and backends.

    x_{k+1} = P(x_k + 0.75 (P(x_k + s direction(gradient)) - x_k) + 0.25 (x_k - x_{k-1}))
    s       = 2 epsilon at first, halved, from the best point so far, where the loss stalls
    P projects onto the ball and the range of pixels;    direction = sign in Linf, g / |g|_2 in L2
    loss    = -log p_y (ce), max_{i != y} z_i - z_y (margin), -(z_y - max_{i != y} z_i) / (z_1 - z_3) (dlr),
              -log softmax(10 z / [z_1 - z_2])_y (mifpe), max_{i != y} p_i - p_y (pma)

with the logits z, z_1 >= z_2 >= ... in order, p = softmax(z), the label y. Sources, and where losses fail:
`kernels/losses.py`. The authors of mifpe and pma have other schedules of the step size.
"""

from __future__ import annotations

from assay.attacks import parameters
from assay.attacks.adversarial.kernels import auto_pgd_by_norm
from assay.attacks.adversarial.kernels.losses import LossName, Untargeted
from assay.attacks.expectation import JUDGING, LAST, PIXEL_ONLY, Expectation
from assay.attacks.kernel import Attack
from assay.attacks.threat import IMAGE_OR_SERIES, lp_ball

__all__ = ["apgd"]

TASKS = ("classification", "series")
THREAT = {"knowledge": "white_box", "search": "iterative"}
TABLE = "attack"
PAPER = auto_pgd_by_norm.PAPER
PASSES = (
    "params.restarts * (params.steps * params.eot + 1 + 2 * (params.norm == 'L1')) + 1"
    f" + (1 + 2 * (params.norm == 'L1')) * {LAST} + {JUDGING}",
    "params.restarts * params.steps * params.eot",
)
RULES = (IMAGE_OR_SERIES[0], auto_pgd_by_norm.STEPS_RULE, parameters.DLR_RULE, PIXEL_ONLY)


def apgd(
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
    loss: LossName = "margin",
) -> Attack:
    """Auto-PGD on a loss of choice: momentum, and a step size that is halved where it gets nowhere.

    Args:
        loss: Cross-entropy, margin of the logits, difference of logits ratio, cross-entropy of rescaled
            logits, or margin of the probabilities.
    """
    return auto_pgd_by_norm.auto_pgd(
        "apgd",
        Untargeted(loss),
        lp_ball(norm, epsilon),
        steps=steps,
        restarts=restarts,
        rho=rho,
        expectation=Expectation(eot, eot_average, judgement, model_draws),
        backend="native",
    )
