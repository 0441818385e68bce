"""Recipe for a minute on a CPU: AdamW, cosine, by steps."""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["small_control"]

TASKS = ("control",)
RULES = (parameters.WARMUP_STEPS_RULE,)


def small_control(
    *,
    steps: parameters.Steps = 1000,
    learning_rate: parameters.LearningRate = 1e-3,
    warmup_steps: parameters.WarmupSteps = 100,
    weight_decay: parameters.WeightDecay = 1e-4,
    clip_norm: parameters.ClipNorm = 1.0,
) -> Recipe:
    """Train a small policy on trajectories of scripted policies.

    Args:
        warmup_steps: linear rise to the peak, before the cosine to zero.
    """
    return Recipe(
        epochs=1,
        steps=steps,
        learning_rate=learning_rate,
        warmup_steps=warmup_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
