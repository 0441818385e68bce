"""Recipe of the Decision Transformer on D4RL: AdamW, a warm-up to a constant rate, 10 x 10 000 steps.

Steps, warm-up, learning rate, weight decay and clipping come from the Primal paper's code (Chen et al.,
NeurIPS 2023). AdamW, batches of 64, the decay of all parameters, and min((t + 1) / warm-up, 1) times the peak
as the rate of step t, from 0, are our choice, which the paper does not state: what we know of the Decision
Transformer's code (Chen et al. 2021).
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["decision_transformer"]

TASKS = ("control",)
PAPER = (
    "Chen et al. 2021, Decision Transformer: Reinforcement Learning via Sequence Modeling; Chen et al. 2023,"
    " Primal-Attention"
)
RULES = (parameters.WARMUP_STEPS_RULE,)


def decision_transformer(
    *,
    steps: parameters.Steps = 100_000,
    learning_rate: parameters.LearningRate = 1e-3,
    warmup_steps: Annotated[int, Interval(ge=1, le=100_000_000)] = 10_000,
    weight_decay: parameters.WeightDecay = 1e-4,
    clip_norm: parameters.ClipNorm = 0.25,
    total_batch: parameters.WindowsPerStep = 64,
) -> Recipe:
    """Train a Decision Transformer as Primal-Attention's was, in batches of 64 windows.

    Args:
        learning_rate: AdamW's, after the warm-up; it does not depend on the batch size.
        warmup_steps: linear rise from 1 / warmup_steps of it.
        weight_decay: of all parameters.
    """
    # The warm-up begins at its first value, not at zero, and reaches the peak one step earlier.
    return Recipe(
        epochs=1,
        steps=steps,
        learning_rate=learning_rate,
        schedule="constant",
        warmup_steps=warmup_steps - 1,
        warmup_learning_rate=learning_rate / warmup_steps,
        weight_decay=weight_decay,
        decay_everything=True,
        clip_norm=clip_norm,
        total_batch=total_batch,
        published_batch=64,
    )
