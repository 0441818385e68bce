"""Recipe for small language models on small texts: AdamW, cosine, by epochs."""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["small_lm"]

TASKS = ("language",)
RULES = parameters.COSINE_RULES


def small_lm(
    *,
    epochs: parameters.Epochs = 10,
    learning_rate: parameters.LearningRate = 1e-3,
    warmup_epochs: parameters.WarmupEpochs = 0.5,
    minimum_learning_rate: parameters.MinimumLearningRate = 1e-5,
    weight_decay: parameters.WeightDecay = 0.01,
    clip_norm: parameters.ClipNorm = 1.0,
    ema_decay: parameters.EmaDecay = None,
) -> Recipe:
    """Train a small language model on a text of up to some million words.

    Args:
        epochs: passes over the text.
    """
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        warmup_epochs=warmup_epochs,
        minimum_learning_rate=minimum_learning_rate,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
    )
