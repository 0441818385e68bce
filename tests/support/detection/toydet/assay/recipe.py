"""AdamW along a cosine, for small detectors."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Interval, Le

from assay.workers.training.recipe import Recipe

__all__ = ["small_detector"]

TASKS = ("detection",)


def small_detector(
    *,
    epochs: Annotated[int, Interval(ge=1, le=1000)] = 40,
    learning_rate: Annotated[float, Gt(0), Le(1)] = 5e-3,
) -> Recipe:
    """AdamW along a cosine.

    Args:
        epochs: Passes over the training set.
        learning_rate: AdamW's.
    """
    return Recipe(epochs=epochs, learning_rate=learning_rate)
