"""Recipe for small classifiers of sequences, for minutes on a processor: AdamW, cosine.

Not a published recipe: those of Long Range Arena take thousands of steps of long sequences.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Interval, Le

from assay.workers.training.recipe import Recipe

__all__ = ["small_sequence"]

TASKS = ("sequence",)
RULES = (("params.warmup_epochs <= params.epochs", "warmup_epochs must not be larger than epochs"),)


def small_sequence(
    *,
    epochs: Annotated[int, Interval(ge=1, le=10_000)] = 8,
    learning_rate: Annotated[float, Gt(0), Le(1)] = 3e-3,
    warmup_epochs: Annotated[float, Ge(0)] = 0.5,
    weight_decay: Annotated[float, Interval(ge=0, le=10)] = 0.01,
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.0,
    clip_norm: Annotated[float, Gt(0)] | None = 1.0,
    ema_decay: Annotated[float, Interval(ge=0, lt=1)] | None = None,
) -> Recipe:
    """Train a small classifier of sequences from scratch; meant for batches of about 32.

    Args:
        epochs: passes over the training set.
        learning_rate: AdamW's peak; it does not depend on the batch size.
        warmup_epochs: rise to the peak; a cosine falls to zero after it.
        weight_decay: of weight matrices only.
        label_smoothing: probability spread evenly over the classes.
        clip_norm: largest L2 norm of the gradient; null does not clip.
        ema_decay: decay per step of an average of the weights, written beside them; null keeps none.
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
