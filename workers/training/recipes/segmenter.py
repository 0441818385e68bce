"""Recipe of Segmenter on ADE20K."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Interval, Le

from assay.workers.training import parameters
from assay.workers.training.recipe import Crops, Recipe

__all__ = ["segmenter"]

TASKS = ("segmentation",)
PAPER = "Strudel et al. 2021, Segmenter: Transformer for semantic segmentation"
RULES = (
    parameters.MINIMUM_RULE,
    ("params.smallest_scale <= params.largest_scale", "smallest_scale must not be larger than largest_scale"),
    (
        "part.backbone_attention != 'scaled_learned' or params.crop_size <= part.backbone_image_size",
        "crop_size must not be larger than the backbone's image_size: its learned S is for that many patches",
    ),
)


def segmenter(
    *,
    epochs: parameters.Epochs = 64,
    learning_rate: parameters.LearningRate = 1e-3,
    minimum_learning_rate: parameters.MinimumLearningRate = 1e-5,
    crop_size: Annotated[int, Interval(ge=1, le=4096)] = 512,
    short_side: Annotated[int, Interval(ge=1, le=4096)] | None = 512,
    smallest_scale: Annotated[float, Gt(0), Le(16)] = 0.5,
    largest_scale: Annotated[float, Gt(0), Le(16)] = 2.0,
    flip: bool = True,
    photometric: bool = True,
    total_batch: parameters.TotalBatch = 8,
) -> Recipe:
    """Train a Segmenter: Nesterov SGD, a polynomial fall of the learning rate, random crops of 512 pixels.

    The defaults are for ADE20K. The momentum is Nesterov's, as timm makes it of "sgd".

    Args:
        learning_rate: SGD's, at the start; it does not depend on the batch size.
        minimum_learning_rate: where the polynomial ends.
        crop_size: side of the random crops, in pixels.
        short_side: short side of an image before its random change of size, in pixels; null takes the file's.
        smallest_scale: least random change of size.
        largest_scale: largest random change of size.
        flip: mirror left to right at random.
        photometric: change brightness, contrast, saturation and hue at random.
    """
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        schedule="polynomial",
        minimum_learning_rate=minimum_learning_rate,
        optimiser="sgd",
        momentum=0.9,
        nesterov=True,
        total_batch=total_batch,
        published_batch=8,
        crops=Crops(
            size=crop_size,
            short_side=short_side,
            scales=(smallest_scale, largest_scale),
            flip=flip,
            photometric=photometric,
        ),
    )
