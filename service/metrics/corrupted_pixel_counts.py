"""Pixel counts of images under many corruptions: text encoding and metrics.

An image has few of the classes, and a model predicts few, so for each cell (a corruption at a severity) only
the predicted classes are written: "0=812/900 3=0/12" says that 900 pixels were predicted as class 0, 812 of
them correctly, and 12 wrongly as class 3. Cells are in the order of `stored_cells.cells_of`, with ";" between
them. The label map is the same in every cell: its pixels per class are kept once.

Metrics are those of `pixel_counts.py` in each cell, from sums over all images, and then a mean over cells.
Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13: images are drawn, and a draw has
all cells of an image, so that the 75 answers to one image do not count as 75 images.

Legend: n images, K classes, R resamples.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from assay.service.metrics.estimates import groups, resamples
from assay.service.metrics.pixel_counts import Counts, pack, ratios, unpack

# The column of outcomes, and the classes of a cell in it: (class, found, predicted).
COLUMN = "corrupted_pixels"
Classes = Sequence[tuple[int, int, int]]
Ratios = dict[str, float | None]

# A resample adds n images of 2 K counts in each cell, and dividing the sums takes as long as so many images.
DIVISIONS = 150
# Beyond this many additions, about 15 seconds, R shrinks.
ADDITIONS = 15_000_000_000
# The largest sum that four bytes hold.
FOUR_BYTES = 2**32 - 1


class Draw(NamedTuple):
    """A resample as its difference from the full set: a quarter fewer additions than one per image.

    Attributes:
        again: Positions of images, once for each time after its first.
        missing: Positions of those that were not drawn.
    """

    again: Sequence[int]
    missing: Sequence[int]


class Cell(NamedTuple):
    """Metrics of one cell: over all images, and in each resample."""

    whole: Ratios
    sampled: list[Ratios]


def write(cells: Iterable[Classes]) -> str:
    """The counts of one image as text.

    Args:
        cells: Per cell the predicted classes, each with its correct pixels and its predicted pixels.
    """
    return ";".join(" ".join(f"{c}={found}/{given}" for c, found, given in cell) for cell in cells)


def read(cell: str) -> list[tuple[int, int, int]]:
    """The classes of one cell of one image: the text between two ";".

    Raises:
        ValueError: it is not as `write` writes it.
    """
    numbers = list(map(int, cell.replace("=", " ").replace("/", " ").split()))
    rows = list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
    if any(c < 0 or not 0 <= found <= given for c, found, given in rows):
        raise ValueError(f"{cell!r} is no list of class=found/predicted")
    return rows


class CellCounts:
    """The counts of some images under the same corruptions.

    Args:
        targets: Pixels of each class in each image, (n, K).
        texts: Per image its cells, as written by `write`, (n,).

    Raises:
        ValueError: there are no images, lengths differ, or images have different cells.
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

    def resamples(self, models: int = 1) -> int:
        """R for so many models: 2000, reduced to no less than 200 where that would take long."""
        additions = models * (self.n + DIVISIONS) * self.cells * 2 * self.classes
        return resamples(additions, ADDITIONS)

    def ratios(self, draws: Sequence[Draw] = ()) -> Iterator[Cell]:
        """The metrics of each cell, in order. One cell is held at a time, as integers of 2 K digits."""
        there = [
            unpack(part, self.classes, self._size)
            for part in _sums([pack(row, self._size) for row in self._targets], draws)
        ]
        for cell in range(self.cells):
            sums = _sums([self._packed(image[cell]) for image in self._cells], draws)
            whole, *sampled = map(self._ratios, sums, there)
            yield Cell(whole, sampled)

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


def left_out(n: int) -> list[Draw]:
    """All images but one group, for each group."""
    return [Draw((), out) for out in groups(n)]


def draw(n: int, resamples: int, seed: str) -> list[Draw]:
    """Draws resamples of n images with replacement."""
    chance = random.Random(f"assay/bootstrap/{seed}")
    images = range(n)
    drawn = []
    for _ in range(resamples):
        times = Counter(chance.choices(images, k=n))
        again = sorted((times - Counter(dict.fromkeys(times, 1))).elements())
        drawn.append(Draw(array("I", again), array("I", sorted(set(images) - times.keys()))))
    return drawn


def _sums(packed: Sequence[int], draws: Iterable[Draw]) -> Iterator[int]:
    """The sum over all images, then over each resample."""
    whole, image = sum(packed), packed.__getitem__
    yield whole
    for drawn in draws:
        yield whole + sum(map(image, drawn.again)) - sum(map(image, drawn.missing))


def mean_ratios(parts: Sequence[Mapping[str, float | None]]) -> Ratios:
    """The mean of each metric over cells; None where one has no value."""
    means: Ratios = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        known = [value for value in values if value is not None]
        means[name] = math.fsum(known) / len(known) if len(known) == len(values) else None
    return means
