"""The fast gradient (sign) method.

Goodfellow et al. 2015, "Explaining and Harnessing Adversarial Examples", section 4, and its L2 form, as in
cleverhans 4.0.

    Linf    x' = clip(x + epsilon sign(g))
    L2      x' = clip(x + epsilon g / |g|_2),    g = the gradient of the loss at x
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.single_step import OneStep, SharedStep
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.libraries.cleverhans import cleverhans_fgsm, native_only
from assay.attacks.expectation import JUDGING, PIXEL_ONLY, Expectation
from assay.attacks.kernel import Attack
from assay.attacks.threat import IMAGE_OR_SERIES, Ball, Fraction, Norm

__all__ = ["fgsm"]

ALSO = ("FGM", "fast gradient", "fast gradient method")
TASKS = ("classification", "series")
THREAT = {"knowledge": "white_box", "search": "single_step", "mean_loss_in": ["cleverhans"]}
TABLE = "attack"
FACTS = {"loss": "ce"}
PAPER = "Goodfellow et al. 2015, Explaining and Harnessing Adversarial Examples"
# The library takes three; the native kernel shares one (`single_step`), unless gradients are averaged.
PASSES = (f"params.eot + 2 + {JUDGING}", "params.eot")
RULES = (*IMAGE_OR_SERIES, *parameters.TARGET_RULES, parameters.EOT_RULE, PIXEL_ONLY)


def fgsm(
    *,
    epsilon: Annotated[Fraction, Interval(ge=0, le=1000)] = 1 / 255,
    norm: Norm = "Linf",
    targeted: parameters.Targeted = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
    eot: parameters.Eot = 1,
    eot_average: parameters.EotAverage = "losses",
    judgement: parameters.Judging = "expected",
    model_draws: parameters.ModelDraws = 100,
    backend: Literal["native", "cleverhans"] = "native",
) -> Attack:
    """One step of length epsilon along the gradient of the loss.

    Args:
        epsilon: Size of the step: in pixel units in `pixel`, in units of the normalised images in `paper`; of
            time series in standard deviations of each feature over the training set.
        norm: Norm that the step is measured in.
        backend: Our kernel, or the library's function.
    """
    ball, goal = Ball(norm, epsilon), Goal(targeted, target, target_class)
    if backend == "cleverhans":
        native_only(eot)
        return cleverhans_fgsm(ball, goal)
    expectation = Expectation(eot, eot_average, judgement, model_draws)
    return SharedStep("fgsm", ball, goal) if eot == 1 else OneStep("fgsm", ball, goal, expectation)
