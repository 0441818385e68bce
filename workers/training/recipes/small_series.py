"""Recipe for minutes on a CPU: AdamW, cosine."""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["small_series"]

TASKS = ("series",)
RULES = (*parameters.SELECTION_RULES, *parameters.COSINE_RULES)


def small_series(
    *,
    epochs: parameters.Epochs = 40,
    learning_rate: parameters.LearningRate = 3e-3,
    warmup_epochs: parameters.WarmupEpochs = 1.0,
    minimum_learning_rate: parameters.MinimumLearningRate = 1e-5,
    weight_decay: parameters.WeightDecay = 0.01,
    label_smoothing: parameters.LabelSmoothing = 0.0,
    clip_norm: parameters.ClipNorm = 1.0,
    ema_decay: parameters.EmaDecay = None,
    validation: parameters.Validation = 0.0,
    selection: parameters.Selected = "last",
) -> Recipe:
    """Train a small classifier of time series from scratch."""
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        warmup_epochs=warmup_epochs,
        minimum_learning_rate=minimum_learning_rate,
        weight_decay=weight_decay,
        label_smoothing=label_smoothing,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
        validation=validation,
        selection=selection,
    )
