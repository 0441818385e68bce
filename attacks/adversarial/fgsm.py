"""The fast gradient (sign) method.

Goodfellow et al. 2015, "Explaining and Harnessing Adversarial Examples", section 4: x + epsilon * sign(grad),
and its L2 form x + epsilon * grad / |grad|, as in cleverhans 4.0.

    Linf    x' = clip(x + epsilon sign(g))
    L2      x' = clip(x + epsilon g / |g|_2),    g = the gradient of the loss at x
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Interval

from assay.attacks.adversarial.kernels.single_step import OneStep, SharedStep
from assay.attacks.adversarial.kernels.targeting import Goal, TargetRule
from assay.attacks.adversarial.libraries.cleverhans import cleverhans_fgsm, native_only
from assay.attacks.expectation import JUDGING, PIXEL_ONLY, Average, Expectation, Judgement
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
RULES = (
    *IMAGE_OR_SERIES,
    ("params.targeted or params.target_class is None", "target_class needs targeted"),
    ("params.target_class is None or params.target_class < data.classes", "target_class must be a class"),
    ("params.backend == 'native' or params.eot == 1", "eot needs backend 'native'"),
    PIXEL_ONLY,
)


def fgsm(
    *,
    epsilon: Annotated[Fraction, Interval(ge=0, le=1000)] = 1 / 255,
    norm: Norm = "Linf",
    targeted: bool = False,
    target: TargetRule = "least_likely",
    target_class: Annotated[int, Ge(0)] | None = None,
    eot: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    eot_average: Average = "losses",
    judgement: Judgement = "expected",
    model_draws: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    backend: Literal["native", "cleverhans"] = "native",
) -> Attack:
    """One step of length epsilon along the gradient of the loss.

    Args:
        epsilon: Size of the step: in pixel units in `pixel`, in units of the normalised images in `paper`; of
            time series in standard deviations of each feature over the training set.
        norm: Norm that the step is measured in.
        targeted: Lower the loss of a target class instead of raising the label's; an example that is
            misclassified in any way counts as broken all the same; `target_hit_rate`
            counts those that end in the target.
        target: How the target is chosen.
        target_class: One target for all examples, instead of `target`.
        eot: Passes at each iterate, for models that answer at random (expectation over transformation).
            Native only.
        eot_average: Average the losses of these passes, or take the loss of their mean logits.
        judgement: With `eot` above 1 the expected accuracy over fresh draws of the model, or, as published
            codes do, that of a single draw: an example is broken by one wrong answer.
        model_draws: Fresh draws of the model from which expected accuracy is estimated.
        backend: Our kernel, or the library's function.
    """
    ball, goal = Ball(norm, epsilon), Goal(targeted, target, target_class)
    if backend == "cleverhans":
        native_only(eot)
        return cleverhans_fgsm(ball, goal)
    expectation = Expectation(eot, eot_average, judgement, model_draws)
    return SharedStep("fgsm", ball, goal) if eot == 1 else OneStep("fgsm", ball, goal, expectation)
