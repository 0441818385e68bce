"""Segmentation of corrupted images at the model's size, generated on demand.

Kamann and Rother, "Benchmarking the Robustness of Semantic Segmentation Models", CVPR 2020, corrupt images as
ImageNet-C does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.attacks.kernel import frozen
from assay.service.metrics.statistics.corrupted_pixel_counts import Classes, write
from assay.workers.evaluation.engine.loader import Images, Loader, Running
from assay.workers.evaluation.engine.segmentation.pixel_counts import (
    Maps,
    PixelCounts,
    Tally,
    checked_prediction,
)


def segment_corrupted(
    model: nn.Module,
    images_of: Images,
    maps_of: Maps,
    ids: Sequence[str],
    *,
    kernels: Sequence[Corruption],
    seed: int,
    classes: int,
    **running: Unpack[Running],
) -> PixelCounts:
    """Runs the model on each image uncorrupted and under each corruption; arguments as for `segment`."""
    loader = Loader(model, images_of, None, ids, **running)
    tally, done = CellTally(ids, classes), 0
    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            (images, logits), maps = loader.load(rows), maps_of(rows.tolist())
            names = [ids[row] for row in rows.tolist()]
            tally.note(rows, checked_prediction(logits, maps, classes), maps)
            for kernel in kernels:
                corrupted = loader.forward(kernel(images, names, seed))
                tally.note_cell(rows, checked_prediction(corrupted, maps, classes), maps)
            done += len(rows)
            loader.tell(done)
    return tally.counts(loader.noted())


class CellTally(Tally):
    """The counts of all images, uncorrupted and under each corruption."""

    def __init__(self, ids: Sequence[str], classes: int) -> None:
        super().__init__(ids, classes)
        # Texts, not tensors: an image has few classes, and 75 cells of 150 classes would be mostly zeros.
        self._cells: list[list[str]] = [[] for _ in ids]

    def note_cell(self, rows: Tensor, prediction: Tensor, maps: Tensor, passes: int = 1) -> None:
        """As `note`, of the same images under their next corruption."""
        counts = self.counted(rows, prediction, maps, passes)
        for row, found, given in zip(rows.tolist(), counts[:, 0], counts[:, 2], strict=True):
            self._cells[row].append(write([_classes(found, given)]))

    def counts(self, noted: Mapping[str, Any], corrupted: tuple[str, ...] | None = None) -> PixelCounts:
        """What has been counted."""
        return super().counts(noted, tuple(map(";".join, self._cells)))


def _classes(found: Tensor, given: Tensor) -> Classes:
    predicted = given.nonzero().flatten()
    columns = (predicted, found[predicted], given[predicted])
    return list(zip(*(column.tolist() for column in columns), strict=True))
