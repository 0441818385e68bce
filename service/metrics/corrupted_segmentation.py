"""Segmentation under corruptions: the metrics of each corruption and severity, and their means.

Counts are added over all images before anything is divided, in each cell (a corruption at a severity); then
cells are averaged with equal weights. The paper (Teo and Nguyen 2024, table 6) does not state the severities
of its means, so the mean at each severity is given too. Intervals come from resampling images: a draw has all
cells of an image. Plain Python, since results are merged by processes that hold no tensors.

Legend: n images, K classes, R resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from assay.service.contract.corruption_cells import Cell, cells_of
from assay.service.contract.results import Breakdown, Metric
from assay.service.metrics.corrupted_pixel_counts import (
    COLUMN,
    CellCounts,
    Draw,
    Ratios,
    draw,
    left_out,
    mean_ratios,
)
from assay.service.metrics.corrupted_pixel_counts import Cell as Measured
from assay.service.metrics.estimates import accelerated
from assay.service.metrics.paired import Difference, Pair, PairedMetrics, Reported, Rows, agrees
from assay.service.metrics.pixel_counts import PixelDifference, differences_of
from assay.service.metrics.segmentation import NO_PIXEL, UNITS, PairedPixels, Segmentation
from assay.service.metrics.table import Column, Context, Reasons, Summary, Units

# Prefix of the means over corruptions and severities; metrics of cells, in the breakdown, lack it.
PREFIX = "corrupted_"


class CorruptedSegmentation(Segmentation):
    """Pixel counts of uncorrupted images, and of each corruption and severity."""

    name = "corrupted_segmentation"
    columns = (*Segmentation.columns, Column(COLUMN))
    units: ClassVar[Units] = {**UNITS, **{PREFIX + name: unit for name, unit in UNITS.items()}}
    undefined: ClassVar[Reasons] = dict.fromkeys(units, NO_PIXEL)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies and mIoU under the corruptions, then those of the uncorrupted images.

        The first metric is what tables of one number show, and what a study tests by default.
        """
        metrics, breakdown = corrupted_segmentation_metrics(rows, cells_of(context.params))
        return Summary(metrics | super().summarise(rows, context).metrics, breakdown)

    def paired(self, pair: Pair) -> PairedMetrics:
        """A bootstrap over images, all corruptions of an image together."""
        return PairedCells(pair)


def corrupted_segmentation_metrics(
    columns: Mapping[str, Sequence[Any]], cells: Sequence[Cell]
) -> tuple[dict[str, Metric], list[Breakdown]]:
    """Metrics over all cells, and those of each cell.

    Args:
        columns: `target` (n, K) and `corrupted_pixels` (n,), sorted by example id.
        cells: the corruptions and severities, in the order of the texts.

    Returns:
        `corrupted_miou`, `corrupted_mean_accuracy` and `corrupted_pixel_accuracy`: means over corruptions and
        severities. The breakdown has `miou`, `mean_accuracy` and `pixel_accuracy`: the mean at each severity,
        that of each corruption, then those of each cell. Fractions, with BCa bootstrap 95 % intervals over
        images; None where no pixel has a class.

    Raises:
        ValueError: an image has not one text for each cell, or a text cannot be read.
    """
    counts = CellCounts(columns["target"], columns[COLUMN])
    if counts.cells != len(cells):
        raise ValueError(f"an image has {counts.cells} outcomes, {len(cells)} were to be measured")
    draws = draw(counts.n, counts.resamples(), "metric/corrupted_segmentation")
    count = len(draws)
    found = dict(zip(cells, counts.ratios([*draws, *left_out(counts.n)]), strict=True))
    breakdown = []
    for corruption, severity in (*_means(cells), *cells):
        part = [m for (c, s), m in found.items() if corruption in (None, c) and severity in (None, s)]
        metrics = _metrics(_mean(part), counts.n, count)
        breakdown.append(Breakdown(corruption=corruption, severity=severity, metrics=metrics))
    whole = _metrics(_mean(list(found.values())), counts.n, count)
    return {PREFIX + name: metric for name, metric in whole.items()}, breakdown


def _means(cells: Sequence[Cell]) -> Iterator[tuple[str | None, int | None]]:
    """Every severity over all corruptions, then every corruption over all severities."""
    yield from ((None, severity) for severity in sorted({severity for _, severity in cells}))
    yield from ((name, None) for name in dict.fromkeys(name for name, _ in cells))


def _mean(parts: Sequence[Measured]) -> Measured:
    sampled = [mean_ratios(resample) for resample in zip(*(part.sampled for part in parts), strict=True)]
    return Measured(mean_ratios([part.whole for part in parts]), sampled)


def _metrics(measured: Measured, n: int, count: int) -> dict[str, Metric]:
    """With `count` resamples, then those without a group of images."""
    found = {}
    for name, value in measured.whole.items():
        every = [one[name] for one in measured.sampled]
        found[name] = accelerated(value, every[:count], every[count:], n)
    return found


class PairedCells:
    """Two models' pixel counts of the same images, uncorrupted and under corruptions."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._as_they_are = PairedPixels(pair)

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`."""
        if not metric.startswith(PREFIX):
            return self._as_they_are.difference(metric, reported)
        name = metric.removeprefix(PREFIX)
        for whole, value in zip(self._wholes, reported, strict=True):
            if not agrees(whole.get(name), value):
                return None
        found = self._differences.get(name)
        return None if found is None else self._pair.bootstrap(found.difference, found.resamples)

    @cached_property
    def _wholes(self) -> list[Ratios]:
        if all(len(rows) == len(self._pair.ids) for rows in self._pair.rows):
            return [means[0] for means in self._sampled]
        return [_all_means(CellCounts(part["target"], part[COLUMN]))[0] for part in self._pair.columns]

    @cached_property
    def _sampled(self) -> tuple[list[Ratios], list[Ratios]]:
        """The means of both over the common images, over each resample of them, and without each group.

        The same draws for both: each has both models' counts of an image.
        """
        first, second = (
            CellCounts(*(self._pair.common(side, name) for name in ("target", COLUMN))) for side in (0, 1)
        )
        draws = [*draw(first.n, first.resamples(models=2), self._pair.seed), *left_out(first.n)]
        return _all_means(first, draws), _all_means(second, draws)

    @cached_property
    def _differences(self) -> dict[str, PixelDifference]:
        first, second = self._sampled
        whole, *sampled = map(_less, second, first)
        n = len(self._pair.ids)
        count = len(sampled) - len(left_out(n))
        return differences_of(whole, sampled[:count], sampled[count:], n)


def _all_means(counts: CellCounts, draws: Sequence[Draw] = ()) -> list[Ratios]:
    """The means over cells: of all images, then of each resample."""
    cells = list(counts.ratios(draws))
    sampled = [mean_ratios(resample) for resample in zip(*(cell.sampled for cell in cells), strict=True)]
    return [mean_ratios([cell.whole for cell in cells]), *sampled]


def _less(some: Ratios, others: Ratios) -> Ratios:
    pairs = {name: (value, others[name]) for name, value in some.items()}
    return {name: None if a is None or b is None else a - b for name, (a, b) in pairs.items()}
