"""Segmentation under corruptions: the metrics of each corruption and severity, and their means.

Counts are added over all images before anything is divided, in each cell (a corruption at a severity); then
cells are averaged with equal weights. The paper (Teo and Nguyen 2024, table 6) does not state the severities
of its means, so the mean at each severity is given too. Intervals are the jackknife's over images, each
left out of all its cells at once.

Legend: n images, K classes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from assay.service.contract.corruption_cells import Cell, cells_of
from assay.service.contract.results import Breakdown, Metric
from assay.service.metrics.answers import Answers
from assay.service.metrics.paired import Difference, Pair, PairedMetrics, Reported, Rows
from assay.service.metrics.statistics.corrupted_pixel_counts import COLUMN, CellCounts, mean_ratios
from assay.service.metrics.statistics.corrupted_pixel_counts import Cell as Measured
from assay.service.metrics.statistics.estimates import groups, jackknifed
from assay.service.metrics.statistics.jackknife import TestedDifference
from assay.service.metrics.statistics.paired_estimates import FirstOf
from assay.service.metrics.statistics.pixel_counts import Ratios, differences_of
from assay.service.metrics.table import Column, Context, Reasons, Summary, Units
from assay.service.metrics.tables.segmentation import (
    NO_PIXEL,
    UNITS,
    PairedPixels,
    Segmentation,
    pixel_answers,
)

__all__ = ["CorruptedSegmentation"]

PREFIX = "corrupted_"  # Of means over corruptions and severities; metrics of cells lack it.


class CorruptedSegmentation(Segmentation):
    """Pixel counts of uncorrupted images, and of each corruption and severity."""

    name = "corrupted_segmentation"
    columns = (*Segmentation.columns, Column(COLUMN))
    units: ClassVar[Units] = {**UNITS, **{PREFIX + name: unit for name, unit in UNITS.items()}}
    undefined: ClassVar[Reasons] = dict.fromkeys(units, NO_PIXEL)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies and mIoU under the corruptions, then on the uncorrupted images."""
        metrics, breakdown = corrupted_segmentation_metrics(rows, cells_of(context.params))
        return Summary(metrics | super().summarise(rows, context).metrics, breakdown)

    def paired(self, pair: Pair) -> PairedMetrics:
        """A jackknife over images, all corruptions of an image together."""
        return FirstOf(PairedCells(pair), PairedPixels(pair))

    def unattacked(self, rows: Rows, context: Context) -> Answers | None:
        """The classes of the pixels of uncorrupted images."""
        del context
        return pixel_answers(rows, attacked=True)


def corrupted_segmentation_metrics(
    columns: Mapping[str, Sequence[Any]], cells: Sequence[Cell]
) -> tuple[dict[str, Metric], list[Breakdown]]:
    """Metrics over all cells, and of each cell.

    The columns are `target` (n, K) and `corrupted_pixels` (n,), sorted by example id; the cells are the
    corruptions and severities, in the order of the texts. Returns `corrupted_miou`, `corrupted_mean_accuracy`
    and `corrupted_pixel_accuracy`: means over corruptions and severities. The breakdown has `miou`,
    `mean_accuracy` and `pixel_accuracy`: the mean at each severity, the mean of each corruption, then the
    values of each cell. Fractions, with jackknife 95 % intervals over images; None where no pixel has a
    class. Raises ValueError: an image has not one text for each cell, or a text cannot be read.
    """
    counts = CellCounts(columns["target"], columns[COLUMN])
    if counts.cells != len(cells):
        raise ValueError(f"an image has {counts.cells} outcomes, {len(cells)} were to be measured")
    found = dict(zip(cells, counts.ratios(_outs(counts.n)), strict=True))
    breakdown = []
    for corruption, severity in (*_means(cells), *cells):
        part = [m for (c, s), m in found.items() if corruption in (None, c) and severity in (None, s)]
        metrics = _metrics(_mean(part), counts.n)
        breakdown.append(Breakdown(corruption=corruption, severity=severity, metrics=metrics))
    whole = _metrics(_mean(list(found.values())), counts.n)
    return {PREFIX + name: metric for name, metric in whole.items()}, breakdown


def _means(cells: Sequence[Cell]) -> Iterator[tuple[str | None, int | None]]:
    """Every severity over all corruptions, then every corruption over all severities."""
    yield from ((None, severity) for severity in sorted({severity for _, severity in cells}))
    yield from ((name, None) for name in dict.fromkeys(name for name, _ in cells))


def _mean(parts: Sequence[Measured]) -> Measured:
    left_out = [mean_ratios(one) for one in zip(*(part.left_out for part in parts), strict=True)]
    return Measured(mean_ratios([part.whole for part in parts]), left_out)


def _metrics(measured: Measured, n: int) -> dict[str, Metric]:
    return {
        name: jackknifed(value, [one[name] for one in measured.left_out], n)
        for name, value in measured.whole.items()
    }


def _outs(n: int) -> Sequence[frozenset[int]]:
    return groups(n) if n > 1 else ()


class PairedCells(PairedPixels):
    """Two models' pixel counts of the same images under corruptions."""

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`."""
        if not metric.startswith(PREFIX):
            return None
        return super().difference(metric.removeprefix(PREFIX), reported)

    @cached_property
    def _wholes(self) -> list[Ratios]:
        if all(len(rows) == len(self._pair.ids) for rows in self._pair.rows):
            return [means.whole for means in self._common]
        return [_means_of(CellCounts(part["target"], part[COLUMN])).whole for part in self._pair.columns]

    @cached_property
    def _common(self) -> tuple[Measured, Measured]:
        first, second = (
            CellCounts(*(self._pair.common(side, name) for name in ("target", COLUMN))) for side in (0, 1)
        )
        outs = _outs(first.n)
        return _means_of(first, outs), _means_of(second, outs)

    @cached_property
    def _differences(self) -> dict[str, TestedDifference]:
        return differences_of(*self._common, len(self._pair.ids))


def _means_of(counts: CellCounts, outs: Sequence[Collection[int]] = ()) -> Measured:
    """The means over cells: of all images, then without each group."""
    return _mean(list(counts.ratios(outs)))
