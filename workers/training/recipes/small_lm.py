"""Recipe for small language models on small texts: AdamW, cosine, by epochs."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Interval, Le

from assay.workers.training.recipe import Recipe

__all__ = ["small_lm"]

TASKS = ("language",)
RULES = (
    ("params.warmup_epochs <= params.epochs", "warmup_epochs must not be larger than epochs"),
    (
        "params.minimum_learning_rate <= params.learning_rate",
        "minimum_learning_rate must not be larger than learning_rate",
    ),
)


def small_lm(
    *,
    epochs: Annotated[int, Interval(ge=1, le=10_000)] = 10,
    learning_rate: Annotated[float, Gt(0), Le(1)] = 1e-3,
    warmup_epochs: Annotated[float, Ge(0)] = 0.5,
    minimum_learning_rate: Annotated[float, Interval(ge=0, le=1)] = 1e-5,
    weight_decay: Annotated[float, Interval(ge=0, le=10)] = 0.01,
    clip_norm: Annotated[float, Gt(0)] | None = 1.0,
    ema_decay: Annotated[float, Interval(ge=0, lt=1)] | None = None,
) -> Recipe:
    """Train a small language model on a text of up to some million words.

    Args:
        epochs: passes over the text.
        learning_rate: AdamW's peak; it does not depend on the batch size.
        warmup_epochs: linear rise to the peak.
        minimum_learning_rate: where the cosine ends.
        weight_decay: of weight matrices only.
        clip_norm: largest L2 norm of the gradient; null does not clip.
        ema_decay: decay per step of an average of the weights, written beside them; null keeps none.
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
