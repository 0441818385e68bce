"""AdamW at a constant rate: seconds on small images."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Interval, Le

from assay.workers.training.recipe import Recipe

__all__ = ["steady"]

TASKS = ("classification", "counting")


def steady(
    *,
    epochs: Annotated[int, Interval(ge=1, le=100)] = 10,
    learning_rate: Annotated[float, Gt(0), Le(1)] = 3e-3,
) -> Recipe:
    """AdamW at a constant rate.

    Args:
        epochs: Passes over the training set.
        learning_rate: AdamW's.
    """
    return Recipe(epochs=epochs, learning_rate=learning_rate, minimum_learning_rate=learning_rate)
