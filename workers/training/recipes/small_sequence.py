"""Recipe for small classifiers of sequences, for minutes on a processor: AdamW, cosine.

Not a published recipe: Long Range Arena's take thousands of steps of long sequences.
"""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["small_sequence"]

TASKS = ("sequence",)
RULES = (parameters.WARMUP_RULE,)


def small_sequence(
    *,
    epochs: parameters.Epochs = 8,
    learning_rate: parameters.LearningRate = 3e-3,
    warmup_epochs: parameters.WarmupEpochs = 0.5,
    weight_decay: parameters.WeightDecay = 0.01,
    label_smoothing: parameters.LabelSmoothing = 0.0,
    clip_norm: parameters.ClipNorm = 1.0,
    ema_decay: parameters.EmaDecay = None,
) -> Recipe:
    """Train a small classifier of sequences from scratch; meant for batches of about 32.

    Args:
        warmup_epochs: rise to the peak; a cosine falls to zero after it.
    """
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        warmup_epochs=warmup_epochs,
        weight_decay=weight_decay,
        label_smoothing=label_smoothing,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
    )
