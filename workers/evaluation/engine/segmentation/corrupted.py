"""Segmentation of corrupted images at the model's size, generated on demand.

Kamann and Rother, "Benchmarking the Robustness of Semantic Segmentation Models", CVPR 2020, corrupt images as
ImageNet-C does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.attacks.kernel import frozen
from assay.service.metrics.statistics.corrupted_pixel_counts import Classes, write
from assay.workers.evaluation.engine.loader import DType, Images, Loader, Progress
from assay.workers.evaluation.engine.segmentation.pixel_counts import Maps, PixelCounts, count_pixels


def segment_corrupted(
    model: nn.Module,
    images_of: Images,
    maps_of: Maps,
    ids: Sequence[str],
    *,
    kernels: Sequence[Corruption],
    seed: int,
    classes: int,
    batch_size: int,
    device: torch.device | str = "cpu",
    dtype: DType = "float32",
    progress: Progress | None = None,
) -> PixelCounts:
    """Runs the model on each image uncorrupted and under each corruption; arguments as for `segment`."""
    loader = Loader(model, images_of, None, ids, batch_size, device, dtype)
    tally, done = CellTally(ids, classes), 0
    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            (images, logits), maps = loader.load(rows), maps_of(rows.tolist())
            names = [ids[row] for row in rows.tolist()]
            _note(tally, rows, logits, maps, classes, clean=True)
            for kernel in kernels:
                corrupted = loader.forward(kernel(images, names, seed))
                _note(tally, rows, corrupted, maps, classes, clean=False)
            done += len(rows)
            if progress is not None:
                progress(done)
    return tally.counts(loader.noted())


def _note(tally: CellTally, rows: Tensor, logits: Tensor, maps: Tensor, classes: int, *, clean: bool) -> None:
    wanted = (len(rows), classes, *maps.shape[1:])
    if logits.shape != wanted:
        raise ValueError(f"the model must give logits {wanted}, it gave {tuple(logits.shape)}")
    finite = logits.isfinite().all(dim=1)  # (B, H, W)
    prediction = logits.argmax(dim=1).masked_fill(~finite, classes).cpu()
    whole = (prediction < classes).flatten(1).all(dim=1)
    tally.note(rows, prediction, maps, finite=whole, passes=1, clean=clean)


class CellTally:
    """The counts of all images."""

    def __init__(self, ids: Sequence[str], classes: int) -> None:
        self._ids = tuple(ids)
        self._classes = classes
        self._clean = torch.zeros(len(ids), 3, classes, dtype=torch.int64)
        # Texts, not tensors: an image has few classes, and 75 cells of 150 classes would be mostly zeros.
        self._cells: list[list[str]] = [[] for _ in ids]
        self._forward = torch.zeros(len(ids), dtype=torch.int64)
        self._nonfinite = torch.zeros(len(ids), dtype=torch.bool)

    def note(
        self, rows: Tensor, prediction: Tensor, maps: Tensor, *, finite: Tensor, passes: int, clean: bool
    ) -> None:
        """Count the pixels of images at indices `rows` (B,), uncorrupted or under their next corruption.

        `prediction`: int64 (B, H, W) on the CPU, K where logits are not finite; `maps`: classes or IGNORE,
        uint8 (B, H, W); `finite`: whether all logits of an image are, bool (B,); `passes`: of each image.
        """
        counts = count_pixels(prediction, maps, self._classes)
        if clean:
            self._clean[rows] = counts
        else:
            for row, found, given in zip(rows.tolist(), counts[:, 0], counts[:, 2], strict=True):
                self._cells[row].append(write([_classes(found, given)]))
        self._forward[rows] += passes
        self._nonfinite[rows] |= ~finite

    def counts(self, noted: Mapping[str, Any]) -> PixelCounts:
        """What has been counted."""
        intersection, target, predicted = self._clean.unbind(1)
        return PixelCounts(
            ids=self._ids,
            intersection=intersection,
            target=target,
            predicted=predicted,
            forward=self._forward,
            backward=torch.zeros_like(self._forward),
            corrupted=tuple(map(";".join, self._cells)),
            nonfinite=int(self._nonfinite.sum()),
            noted=noted,
        )


def _classes(found: Tensor, given: Tensor) -> Classes:
    predicted = given.nonzero().flatten()
    columns = (predicted, found[predicted], given[predicted])
    return list(zip(*(column.tolist() for column in columns), strict=True))
