"""Choice of a training's batch source, by its recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch

from assay.workers import catalog
from assay.workers.data.formats.dataset import DataSet, ExampleSet, ImageSet
from assay.workers.data.formats.segmentation import SegmentationSet
from assay.workers.training.augmentation.crops import CropExamples
from assay.workers.training.batch_workers import MadeBatches
from assay.workers.training.batches import Batches, Source
from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.examples import Examples
from assay.workers.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How a training makes its batches."""

    seed: int  # keys order and augmentation
    image_size: int  # side of the images (crops have their own), most words of an example, steps of a window
    batch_size: int  # examples, over all processes
    device: torch.device
    processes: Processes = ALONE
    workers: int = 0  # processes that make examples for this one
    rows: Sequence[int] | None = None  # the trained examples; None: all


def source_of(data: ExampleSet, recipe: Recipe, how: Batching) -> Source:
    """Batch source of a training on its split."""
    source: Source = catalog.task(data.task).batches(data, recipe, how)
    return source


def image_batches(data: ImageSet, recipe: Recipe, how: Batching) -> Source:
    """Batches of images or series; errors as of `source_of`."""
    augmentation = recipe.augmentation
    if recipe.crops is None and not augmentation.uses_timm:
        return Batches(
            data,
            seed=how.seed,
            image_size=how.image_size,
            batch_size=how.batch_size,
            device=how.device,
            augmentation=augmentation,
            processes=how.processes,
            rows=how.rows,
        )
    return MadeBatches(
        _examples(data, recipe, how.image_size),
        seed=how.seed,
        batch_size=how.batch_size,
        device=how.device,
        repeats=augmentation.repeats,
        processes=how.processes,
        workers=how.workers,
        rows=how.rows,
        noise=(data.mean, data.std) if augmentation.erase > 0 else None,
    )


def _examples(data: ImageSet, recipe: Recipe, image_size: int) -> Examples:
    if len(data.ids) == 0:
        raise ValueError(f"data set {data.name!r} has no training examples")
    if recipe.crops is not None:
        return CropExamples(cast(SegmentationSet, data), recipe.crops)
    if not hasattr(data, "labels") or hasattr(data, "longest"):
        raise ValueError(f"timm's augmentation is for images with labels, not for {data.name!r}")
    from assay.workers.training.augmentation.timm_augment import TimmExamples  # timm takes seconds

    return TimmExamples(cast(DataSet, data), recipe.augmentation, image_size)
