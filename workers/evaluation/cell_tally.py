"""Collects the pixel counts of images as they are and under each corruption, as little as must be kept.

Legend: n examples, B batch, K classes, H and W height and width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.service.metrics.corrupted_pixel_counts import Classes, write
from assay.workers.evaluation.engine.segmentation import PixelCounts, count_pixels


class CellTally:
    """The counts of all images.

    Args:
        ids: Example ids.
        classes: K.
    """

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
        """Count the pixels of some images under the next corruption of each, or as they are.

        Args:
            rows: Which, (B,).
            prediction: The class of each pixel, int64 (B, H, W) on the CPU; K where logits are not finite.
            maps: Classes or IGNORE, uint8 (B, H, W).
            finite: Whether all logits of an image are finite, bool (B,).
            passes: What each image cost.
            clean: Whether the images are as they are.
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
    """The classes that were predicted, from the counts of all, (K,) each."""
    predicted = given.nonzero().flatten()
    columns = (predicted, found[predicted], given[predicted])
    return list(zip(*(column.tolist() for column in columns), strict=True))
