"""MI-FGSM: signed steps with momentum, and the variants of it that transfer between models.

Dong et al. 2018, "Boosting Adversarial Attacks with Momentum"; sources of NI, DI, TI and SI:
`momentum_ascent.py`.

    g' = mu g + h / |h|_1,    h the gradient of the cross-entropy
    x' = clip(x0 + P(x + s direction(g') - x0)),    s = step_size, or epsilon / steps
    h at x + s mu g (nesterov), of shrunk images (diversity), convolved (smoothing), of x / 2^i (scales)

Against a model's own gradients `pgd` and `apgd` are stronger than it through `transfer`. The papers have 10
steps, momentum 1, diversity 0.5 to 0.7, smoothing 7 or 15, 5 scales.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.momentum_ascent import MomentumAscent
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack
from assay.attacks.threat import Ball, Fraction

__all__ = ["mi_fgsm"]

ALSO = ("MIM", "MI", "momentum iterative method")
TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative"}
TABLE = "attack"
FACTS = {"loss": "ce"}
PAPER = "Dong et al. 2018, Boosting Adversarial Attacks with Momentum"
PASSES = ("params.steps * (1 + params.scales) + 2", "params.steps * params.scales")
RULES = (parameters.LINF_RULE, parameters.SMOOTHING_RULE, *parameters.TARGET_RULES)


def mi_fgsm(
    *,
    epsilon: parameters.ProtocolRadius = 8 / 255,
    norm: parameters.L2OrLinf = "Linf",
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 10,
    step_size: Annotated[Fraction, Interval(gt=0, le=1000)] | None = None,
    momentum: Annotated[float, Interval(ge=0, le=10)] = 1.0,
    nesterov: bool = False,
    diversity: Annotated[float, Interval(ge=0, le=1)] = 0.0,
    resize: Annotated[float, Interval(gt=0, le=1)] = 0.9,
    smoothing: Annotated[int, Interval(ge=1, le=99)] = 1,
    scales: Annotated[int, Interval(ge=1, le=20)] = 1,
    targeted: parameters.Targeted = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
) -> Attack:
    """Steps along an average of past gradients, which overfits the attacked model less.

    Args:
        steps: Gradient steps.
        step_size: Length of a step; None takes `epsilon / steps`.
        momentum: Weight of the past gradients.
        nesterov: Take the gradient ahead of the iterate (NI).
        diversity: Probability with which the image is shrunk before a gradient is taken (DI).
        resize: Smallest side of a shrunk image, as a share.
        smoothing: Side of the normal kernel that gradients are convolved with, in pixels, odd (TI).
        scales: Copies at 1, 1/2, 1/4 ... of the pixel values over which gradients are averaged (SI).
    """
    return MomentumAscent(
        "mi_fgsm",
        Ball(norm, epsilon),
        Goal(targeted, target, target_class),
        step_size=epsilon / max(steps, 1) if step_size is None else step_size,
        steps=steps,
        momentum=momentum,
        nesterov=nesterov,
        diversity=diversity,
        resize=resize,
        smoothing=smoothing,
        scales=scales,
    )
