"""Choice of a training's batch source, by its recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from assay.workers.data.formats.dataset import DataSet, ExampleSet, ImageSet
from assay.workers.data.formats.segmentation import SegmentationSet
from assay.workers.data.formats.text import TextSet, is_text
from assay.workers.data.formats.trajectories import ControlSet
from assay.workers.training.batch_workers import MadeBatches
from assay.workers.training.batches import Batches, Source
from assay.workers.training.crops import CropExamples
from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.examples import Examples
from assay.workers.training.recipe import Recipe
from assay.workers.training.tokens import TokenBatches
from assay.workers.training.trajectories import TrajectoryBatches


def source_of(
    data: ExampleSet,
    recipe: Recipe,
    *,
    seed: int,
    image_size: int,
    batch_size: int,
    device: torch.device,
    processes: Processes = ALONE,
    workers: int = 0,
    rows: Sequence[int] | None = None,
) -> Source:
    """Batch source of a training on `rows` (None: all) of its split; the seed keys order and augmentation.

    `image_size` is the side of the images (crops have their own), for text the max words of an example, for
    control the steps of a window. A batch has `batch_size` examples over all processes; `workers` processes
    make examples for this one. Raises ValueError: no examples, too few for the processes, or an unsupported
    augmentation.
    """
    if is_text(data):
        return TokenBatches(
            cast(TextSet, data),
            length=image_size,
            seed=seed,
            batch_size=batch_size,
            device=device,
            processes=processes,
            rows=rows,
        )
    if data.task == "control":
        return TrajectoryBatches(
            cast(ControlSet, data),
            length=image_size,
            seed=seed,
            batch_size=batch_size,
            device=device,
            processes=processes,
        )
    augmentation = recipe.augmentation
    if recipe.crops is None and not augmentation.uses_timm:
        return Batches(
            cast(ImageSet, data),
            seed=seed,
            image_size=image_size,
            batch_size=batch_size,
            device=device,
            augmentation=augmentation,
            processes=processes,
            rows=rows,
        )
    images = cast(ImageSet, data)
    return MadeBatches(
        _examples(images, recipe, image_size),
        seed=seed,
        batch_size=batch_size,
        device=device,
        repeats=augmentation.repeats,
        processes=processes,
        workers=workers,
        rows=rows,
        noise=(images.mean, images.std) if augmentation.erase > 0 else None,
    )


def _examples(data: ImageSet, recipe: Recipe, image_size: int) -> Examples:
    if len(data.ids) == 0:
        raise ValueError(f"data set {data.name!r} has no training examples")
    if recipe.crops is not None:
        return CropExamples(cast(SegmentationSet, data), recipe.crops)
    if data.task != "classification":
        raise ValueError(f"timm's augmentation is for images with labels: {data.name!r} has label maps")
    from assay.workers.training.timm_augment import TimmExamples  # timm takes seconds

    return TimmExamples(cast(DataSet, data), recipe.augmentation, image_size)
