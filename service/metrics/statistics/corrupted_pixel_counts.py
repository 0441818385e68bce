"""Pixel counts of images under many corruptions: text encoding and metrics.

An image has few of the classes, and a model predicts few, so for each cell (a corruption at a severity) only
the predicted classes are written: "0=812/900 3=0/12" says that 900 pixels were predicted as class 0, 812 of
them correctly, and 12 wrongly as class 3. Cells are in the order of `stored_cells.cells_of`, with ";" between
them. The label map is the same in every cell: its pixels per class are kept once.

Metrics are computed by `pixel_counts.py` in each cell, from sums over all images, and averaged over cells. An
image is left out of all its cells at once, so that the 75 answers to an image do not count as 75 images.

Legend: n images, K classes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from assay.service.metrics.statistics.pixel_counts import Counts, Ratios, pack, ratios, unpack

# The column of outcomes, and the classes of a cell in it: (class, found, predicted).
COLUMN = "corrupted_pixels"
Classes = Sequence[tuple[int, int, int]]

FOUR_BYTES = 2**32 - 1  # The largest sum that four bytes hold.


class Cell(NamedTuple):
    """Metrics of a cell: over all images, and without each group."""

    whole: Ratios
    left_out: list[Ratios]


def write(cells: Iterable[Classes]) -> str:
    """The counts of an image as text: per cell the predicted classes, with correct and predicted pixels."""
    return ";".join(" ".join(f"{c}={found}/{given}" for c, found, given in cell) for cell in cells)


def read(cell: str) -> list[tuple[int, int, int]]:
    """The classes in a cell of an image; ValueError for text that `write` cannot have written."""
    numbers = list(map(int, cell.replace("=", " ").replace("/", " ").split()))
    rows = list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
    if any(c < 0 or not 0 <= found <= given for c, found, given in rows):
        raise ValueError(f"{cell!r} is no list of class=found/predicted")
    return rows


class CellCounts:
    """The counts of some images under the same corruptions.

    `targets`: Pixels of each class in each image, (n, K); `texts`: Per image its cells, as written by
    `write`, (n,). Raises ValueError: there are no images, lengths differ, or images have different cells.
    """

    def __init__(self, targets: Sequence[Sequence[int]], texts: Sequence[str]) -> None:
        if not texts or len(targets) != len(texts):
            raise ValueError(f"there must be as many targets as texts, got {len(targets)} and {len(texts)}")
        self._targets = targets
        self._cells = [text.split(";") for text in texts]
        self.cells = len(self._cells[0])
        lengths = {len(cells) for cells in self._cells}
        if lengths != {self.cells}:
            raise ValueError(f"every image must have the same cells, these have {sorted(lengths)}")
        self.n = len(texts)
        self.classes = len(targets[0])
        # No pixel is predicted that has no class, so no sum of predictions is larger.
        most = self.n * max(map(sum, targets))
        self._size = 4 if most <= FOUR_BYTES else 8

    def ratios(self, groups: Sequence[Collection[int]] = ()) -> Iterator[Cell]:
        """The metrics of each cell, in order. One cell is held at a time, as integers of 2 K digits."""
        there = [
            unpack(part, self.classes, self._size)
            for part in _sums([pack(row, self._size) for row in self._targets], groups)
        ]
        for cell in range(self.cells):
            sums = _sums([self._packed(image[cell]) for image in self._cells], groups)
            whole, *left_out = map(self._ratios, sums, there)
            yield Cell(whole, left_out)

    def _packed(self, cell: str) -> int:
        """Found and predicted of each class as one integer."""
        counts = [0] * (2 * self.classes)
        for label, found, given in read(cell):
            if label >= self.classes:
                raise ValueError(f"there is no class {label}, there are {self.classes}")
            counts[label], counts[self.classes + label] = found, given
        return pack(counts, self._size)

    def _ratios(self, packed: int, there: array[int]) -> Ratios:
        digits = unpack(packed, 2 * self.classes, self._size)
        sums: Counts = (digits[: self.classes], there, digits[self.classes :])
        return ratios(sums)


def _sums(packed: Sequence[int], groups: Iterable[Collection[int]]) -> Iterator[int]:
    """The sum over all images, then without each group."""
    whole, image = sum(packed), packed.__getitem__
    yield whole
    for out in groups:
        yield whole - sum(map(image, out))


def mean_ratios(parts: Sequence[Mapping[str, float | None]]) -> Ratios:
    """The mean of each metric over cells; None where one has no value."""
    means: Ratios = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        known = [value for value in values if value is not None]
        means[name] = math.fsum(known) / len(known) if len(known) == len(values) else None
    return means
