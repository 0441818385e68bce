"""Projected gradient descent.

Madry et al. 2018, "Towards Deep Learning Models Resistant to Adversarial Attacks", section 2.1 (without a
random start: the basic iterative method of Kurakin et al. 2016); arithmetic and random start as in cleverhans
4.0. In the `pixel` protocol every iterate counts, the random start included; in `paper` only the last of each
restart.

    Linf    x' = clip(x0 + P(x + s sign(g) - x0)),     P clips every value to [-epsilon, epsilon]
    L2      x' = clip(x0 + P(x + s g / |g|_2 - x0)),   P scales to a norm of at most epsilon
    g = the gradient of the loss at x;    s = step_size, or relative_step_size epsilon
    loss = -log p_y (ce), max_{i != y} z_i - z_y (margin), -(z_y - max_{i != y} z_i) / (z_1 - z_3) (dlr),
           -log softmax(10 z / [z_1 - z_2])_y (mifpe), max_{i != y} p_i - p_y (pma)
    from x = clip(x0 + P(u)), u ~ U(-epsilon, epsilon); from x0 without `random_start`

with the logits z, z_1 >= z_2 >= ... in order, p = softmax(z), the label y. Sources: `kernels/losses.py`.

The defaults are from the released code of RPC-Attention: 20 steps of 0.15 * epsilon.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.losses import LossName
from assay.attacks.adversarial.kernels.projected_ascent import Ascent
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.libraries.cleverhans import cleverhans_pgd, native_only
from assay.attacks.expectation import PIXEL_ONLY, Expectation
from assay.attacks.kernel import Attack
from assay.attacks.threat import IMAGE_OR_SERIES, Ball, Fraction

__all__ = ["pgd"]

ALSO = ("BIM", "I-FGSM", "PGDAttack", "Madry", "projected gradient descent", "Linf PGD", "L2 PGD")
TASKS = ("classification", "series")
THREAT = {"knowledge": "white_box", "search": "iterative", "mean_loss_in": ["cleverhans"]}
TABLE = "attack"
PAPER = "Madry et al. 2018, Towards Deep Learning Models Resistant to Adversarial Attacks"
PASSES = parameters.ASCENT_PASSES
RULES = (
    *IMAGE_OR_SERIES,
    parameters.RESTARTS_RULE,
    *parameters.TARGET_RULES,
    (
        "params.backend != 'cleverhans' or params.step_size is None or params.step_size <= params.epsilon",
        "cleverhans allows no step_size above epsilon",
    ),
    (
        "params.backend != 'cleverhans' or not (params.step_size is None) or params.relative_step_size <= 1",
        "cleverhans allows no relative_step_size above 1",
    ),
    parameters.EOT_RULE,
    ("params.backend == 'native' or params.loss == 'ce'", "cleverhans has the loss ce only"),
    parameters.TARGETED_LOSS_RULE,
    parameters.DLR_RULE,
    PIXEL_ONLY,
)


def pgd(
    *,
    epsilon: parameters.Epsilon = 1 / 255,
    norm: parameters.L2OrLinf = "Linf",
    steps: parameters.Steps = 20,
    step_size: Annotated[Fraction, Interval(gt=0, le=1000)] | None = None,
    relative_step_size: parameters.RelativeStepSize = 0.15,
    random_start: bool = True,
    restarts: parameters.ProtocolRestarts = 1,
    targeted: parameters.Targeted = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
    cycle_detection: bool = True,
    eot: parameters.Eot = 1,
    eot_average: parameters.EotAverage = "losses",
    judgement: parameters.Judging = "expected",
    model_draws: parameters.ModelDraws = 100,
    loss: LossName = "ce",
    backend: Literal["native", "cleverhans"] = "native",
) -> Attack:
    """Many small gradient steps, projected onto the ball of radius epsilon after each.

    Args:
        step_size: Length of a step; None takes `relative_step_size * epsilon`.
        random_start: Begin at a random point: uniform in the cube of half-width epsilon, then projected.
        cycle_detection: Cut a restart short once an iterate repeats an earlier one bit for bit: what follows
            repeats as well (unless the model is random). The same numbers in fewer passes; native only, and
            not with `eot` above 1, which is for random models.
        loss: What an untargeted attack raises: cross-entropy, margin of the logits, difference of logits
            ratio, cross-entropy of rescaled logits, or margin of the probabilities. Native only, but for ce.
        backend: Our kernel, or the library's function (which looks at the last iterate only).
    """
    if steps < 1 or restarts < 1:
        raise ValueError(f"steps ({steps}) and restarts ({restarts}) must be at least 1")
    ball, goal = Ball(norm, epsilon), Goal(targeted, target, target_class, loss)
    step = relative_step_size * epsilon if step_size is None else step_size
    if backend == "cleverhans":
        native_only(eot)
        if loss != "ce":
            raise ValueError(f"cleverhans has the loss ce only, not {loss}")
        return cleverhans_pgd(
            ball, goal, step_size=step, steps=steps, random_start=random_start, restarts=restarts
        )
    return Ascent(
        "pgd",
        ball,
        goal,
        step_size=step,
        steps=steps,
        restarts=restarts,
        random_start=random_start,
        # What a random model repeats by chance doesn't go on in the same way.
        cycle_detection=cycle_detection and eot == 1,
        expectation=Expectation(eot, eot_average, judgement, model_draws),
    )
