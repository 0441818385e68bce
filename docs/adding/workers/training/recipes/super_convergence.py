"""One cycle of SGD at a large rate (Smith and Topin 2018)."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Le

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["super_convergence"]

TASKS = ("classification",)
PAPER = (
    "Smith and Topin 2018, Super-Convergence: Very Fast Training of Neural Networks"
    " Using Large Learning Rates"
)
RULES = (parameters.WARMUP_RULE,)


def super_convergence(
    *,
    epochs: parameters.Epochs = 30,
    learning_rate: Annotated[float, Gt(0), Le(10)] = 1.0,
    warmup_epochs: parameters.WarmupEpochs = 10.0,
    weight_decay: parameters.WeightDecay = 1e-4,
) -> Recipe:
    """Train with SGD: the rate rises and falls once, the momentum falls and rises.

    Args:
        learning_rate: SGD's peak.
    """
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        schedule="one_cycle_linear",
        warmup_epochs=warmup_epochs,
        weight_decay=weight_decay,
        optimiser="sgd",
        momentum_cycle=(0.85, 0.95),
    )
