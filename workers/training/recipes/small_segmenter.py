"""Recipe for small segmentation models on small images: AdamW, cosine, mild geometric augmentation."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.workers.training import parameters
from assay.workers.training.recipe import Augmentation, Recipe

__all__ = ["small_segmenter"]

TASKS = ("segmentation",)
RULES = parameters.COSINE_RULES


def small_segmenter(
    *,
    epochs: parameters.Epochs = 30,
    learning_rate: parameters.LearningRate = 1e-3,
    warmup_epochs: parameters.WarmupEpochs = 1.0,
    minimum_learning_rate: parameters.MinimumLearningRate = 1e-5,
    weight_decay: parameters.WeightDecay = 0.05,
    label_smoothing: parameters.LabelSmoothing = 0.0,
    clip_norm: parameters.ClipNorm = 1.0,
    ema_decay: parameters.EmaDecay = None,
    shift: Annotated[float, Interval(ge=0, le=1)] = 0.1,
    rotate: Annotated[float, Interval(ge=0, le=180)] = 0.0,
    scale: Annotated[float, Interval(ge=0, lt=1)] = 0.2,
    flip: bool = True,
) -> Recipe:
    """Train a small segmentation model from scratch on small images; not the recipe of Segmenter's paper.

    Args:
        learning_rate: AdamW's peak, for batches of 32 to 64.
        shift: largest translation, as a fraction of the side; what comes in from outside is ignored.
        rotate: largest rotation either way, in degrees.
        scale: largest relative change of size either way.
        flip: mirror left to right at random.
    """
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        warmup_epochs=warmup_epochs,
        minimum_learning_rate=minimum_learning_rate,
        weight_decay=weight_decay,
        label_smoothing=label_smoothing,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
        augmentation=Augmentation(shift=shift, rotate=rotate, scale=scale, flip=flip),
    )
