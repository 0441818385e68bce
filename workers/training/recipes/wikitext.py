"""Recipe of Symmlm and RPC-Symmlm on WikiText-103: Adam, cosine to zero, 500 000 steps.

Teo and Nguyen, NeurIPS 2024, appendix; the values are lmtool-fwp's for small models, and so is the
cosine, which runs from step 0 behind the warm-up. Dropout belongs to the model. Deviation: lmtool-fwp makes
its first step at the peak, before its warm-up begins; here it is at 0.
"""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["wikitext"]

TASKS = ("language",)
PAPER = "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA"
RULES = (parameters.WARMUP_STEPS_RULE,)


def wikitext(
    *,
    steps: parameters.Steps = 500_000,
    learning_rate: parameters.LearningRate = 2.5e-4,
    warmup_steps: parameters.WarmupSteps = 2000,
    minimum_learning_rate: parameters.MinimumLearningRate = 0.0,
    weight_decay: parameters.WeightDecay = 0.0,
    clip_norm: parameters.ClipNorm = 0.25,
    ema_decay: parameters.EmaDecay = None,
    total_batch: parameters.WindowsPerStep = 96,
) -> Recipe:
    """Train a language model as Symmlm was, on WikiText-103 in batches of 96 windows of 256 words.

    Args:
        learning_rate: Adam's peak; it does not depend on the batch size.
        warmup_steps: linear rise to the peak.
        weight_decay: decoupled, of weight matrices only; 0 is Adam.
    """
    return Recipe(
        epochs=1,
        steps=steps,
        learning_rate=learning_rate,
        schedule="cosine_from_start",
        warmup_steps=warmup_steps,
        warmup_learning_rate=0.0,
        minimum_learning_rate=min(minimum_learning_rate, learning_rate),
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
        total_batch=total_batch,
        published_batch=96,
    )
