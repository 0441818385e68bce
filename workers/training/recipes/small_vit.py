"""Recipe for small vision transformers on small images: AdamW, cosine, mild geometric augmentation."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.workers.training import parameters
from assay.workers.training.recipe import Augmentation, Recipe, Schedule

__all__ = ["small_vit"]

TASKS = ("classification",)
PASSES = parameters.ADVERSARIAL_PASSES
RULES = (
    (
        "params.warmup_epochs is None or params.warmup_epochs <= params.epochs",
        "warmup_epochs must not be larger than epochs",
    ),
    parameters.MINIMUM_RULE,
    *parameters.SELECTION_RULES,
)

# Default warm-up as a fraction of the epochs: 5 of 60.
WARMUP_SHARE = 1 / 12
MAX_DEFAULT_WARMUP = 5.0


def small_vit(
    *,
    epochs: parameters.Epochs = 60,
    learning_rate: parameters.LearningRate = 1e-3,
    schedule: Schedule = "cosine",
    warmup_epochs: parameters.WarmupEpochs | None = None,
    minimum_learning_rate: parameters.MinimumLearningRate = 1e-5,
    weight_decay: parameters.WeightDecay = 0.05,
    label_smoothing: parameters.LabelSmoothing = 0.1,
    clip_norm: parameters.ClipNorm = 1.0,
    ema_decay: parameters.EmaDecay = None,
    shift: Annotated[float, Interval(ge=0, le=1)] = 0.1,
    rotate: Annotated[float, Interval(ge=0, le=180)] = 10.0,
    scale: Annotated[float, Interval(ge=0, lt=1)] = 0.1,
    flip: bool = False,
    mixup: Annotated[float, Interval(ge=0, le=100)] = 0.0,
    validation: parameters.Validation = 0.0,
    selection: parameters.Selected = "last",
    adversarial: parameters.Adversarial = None,
    attack_epsilon: parameters.AttackEpsilon = 8 / 255,
    attack_steps: parameters.AttackSteps = 10,
    attack_step_size: parameters.AttackStepSize = None,
    trades_beta: parameters.Beta = 6.0,
) -> Recipe:
    """Train a small vision transformer from scratch on small images.

    Args:
        learning_rate: AdamW's peak, for batches of 64.
        schedule: how the learning rate falls after a linear rise: along a cosine, a polynomial of power 0.9,
            with the inverse square root of the step, or not at all; or one cycle, rising and falling along
            cosines or along lines.
        warmup_epochs: rise to the peak; null is a twelfth of the epochs, at most 5.
        minimum_learning_rate: where the fall ends.
        shift: largest translation, as a fraction of the side.
        rotate: largest rotation either way, in degrees.
        scale: largest relative change of size either way.
        flip: mirror left to right at random; not for digits or letters.
        mixup: Beta parameter of mixup; 0 is off.
    """
    if warmup_epochs is None:
        warmup_epochs = min(MAX_DEFAULT_WARMUP, epochs * WARMUP_SHARE)
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        schedule=schedule,
        warmup_epochs=warmup_epochs,
        minimum_learning_rate=minimum_learning_rate,
        weight_decay=weight_decay,
        label_smoothing=label_smoothing,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
        validation=validation,
        selection=selection,
        augmentation=Augmentation(shift=shift, rotate=rotate, scale=scale, flip=flip, mixup=mixup),
        adversarial=parameters.adversarial_training(
            adversarial, attack_epsilon, attack_steps, attack_step_size, trades_beta
        ),
    )
