"""Recipe for minutes on a CPU: AdamW, cosine, mean squared error."""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["small_series_regression"]

TASKS = ("series_regression",)
RULES = parameters.COSINE_RULES


def small_series_regression(
    *,
    epochs: parameters.Epochs = 40,
    learning_rate: parameters.LearningRate = 3e-3,
    warmup_epochs: parameters.WarmupEpochs = 1.0,
    minimum_learning_rate: parameters.MinimumLearningRate = 1e-5,
    weight_decay: parameters.WeightDecay = 0.01,
    clip_norm: parameters.ClipNorm = 1.0,
    ema_decay: parameters.EmaDecay = None,
) -> Recipe:
    """Train a small regression on time series from scratch, on the mean squared error.

    The loss is in units of the variance of the training targets: 1 for the constant training mean.
    """
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        warmup_epochs=warmup_epochs,
        minimum_learning_rate=minimum_learning_rate,
        weight_decay=weight_decay,
        label_smoothing=0.0,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
    )
