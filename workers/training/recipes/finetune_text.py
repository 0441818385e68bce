"""Recipe for text classifiers, from the weights of a language model or from scratch: AdamW, cosine.

The papers state none for SST and IMDB; these values suit small models.
"""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["finetune_text"]

TASKS = ("sequence",)
RULES = (*parameters.COSINE_RULES, *parameters.SELECTION_RULES)


def finetune_text(
    *,
    epochs: parameters.Epochs = 5,
    learning_rate: parameters.LearningRate = 3e-4,
    warmup_epochs: parameters.WarmupEpochs = 0.3,
    minimum_learning_rate: parameters.MinimumLearningRate = 0.0,
    weight_decay: parameters.WeightDecay = 0.01,
    label_smoothing: parameters.LabelSmoothing = 0.0,
    clip_norm: parameters.ClipNorm = 1.0,
    ema_decay: parameters.EmaDecay = None,
    validation: parameters.Validation = 0.0,
    selection: parameters.Selected = "last",
) -> Recipe:
    """Train a text classifier, all of its weights, for a few epochs."""
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
