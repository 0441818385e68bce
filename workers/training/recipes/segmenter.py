"""The recipe of Segmenter on ADE20K."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Interval, Le

from workers.training.recipe import Recipe, SegmentationRecipe

__all__ = ["segmenter"]

TASKS = ("segmentation",)
PAPER = "Strudel et al. 2021, Segmenter: Transformer for semantic segmentation"
RULES = (
    (
        "params.minimum_learning_rate <= params.learning_rate",
        "minimum_learning_rate must not be larger than learning_rate",
    ),
)


def segmenter(
    *,
    epochs: Annotated[int, Interval(ge=1, le=10_000)] = 64,
    learning_rate: Annotated[float, Gt(0), Le(1)] = 1e-3,
    minimum_learning_rate: Annotated[float, Interval(ge=0, le=1)] = 1e-5,
    crop_size: Annotated[int, Interval(ge=1, le=4096)] = 512,
) -> SegmentationRecipe:
    """Train a Segmenter: SGD, a polynomial fall of the learning rate, random crops of 512 pixels.

    Args:
        epochs: passes over the training set.
        learning_rate: SGD's, at the start, for batches of 8.
        minimum_learning_rate: where the polynomial ends.
        crop_size: side of the random crops, in pixels.
    """
    return SegmentationRecipe(
        optimisation=Recipe(
            epochs=epochs,
            learning_rate=learning_rate,
            schedule="polynomial",
            minimum_learning_rate=minimum_learning_rate,
            optimiser="sgd",
            momentum=0.9,
        ),
        crop_size=crop_size,
        scales=(0.5, 2.0),
        flip=True,
        photometric=True,
        ignore_index=255,
        batch_size=8,
    )
