"""The paired differences of two segmentation jobs under corruptions, on their common images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from assay.service.metrics.corrupted_pixel_counts import COLUMN, CellCounts, Draw, Ratios, draw, mean_ratios
from assay.service.metrics.intervals import difference_from
from assay.service.metrics.pixel_counts import PixelDifference
from assay.service.paired_columns import PairedColumns

TOLERANCE = 1e-9
PREFIX = "corrupted_"


class CellPairs(PairedColumns):
    """Two models' pixel counts of the same images under corruptions."""

    def has(self, metric: str) -> bool:
        """Whether the metric is made of these counts, and both have them."""
        return metric.startswith(PREFIX) and bool(self._ids) and all(COLUMN in part for part in self._columns)

    def difference(self, metric: str, reported: tuple[float | None, float | None]) -> PixelDifference | None:
        """How much better the second is than the first; None where that cannot be said.

        Args:
            metric: Its name.
            reported: The values of the metric over all images of each job.
        """
        name = metric.removeprefix(PREFIX)
        for whole, value in zip(self._wholes, reported, strict=True):
            known = whole.get(name)
            if known is None or value is None or abs(known - value) > TOLERANCE:
                return None
        return self._differences.get(name)

    @cached_property
    def _wholes(self) -> list[Ratios]:
        if all(len(rows) == len(self._ids) for rows in self._rows):
            return [means[0] for means in self._sampled]
        return [_means(CellCounts(part["target"], part[COLUMN]))[0] for part in self._columns]

    @cached_property
    def _sampled(self) -> tuple[list[Ratios], list[Ratios]]:
        """The means of both over the common images, then over each resample of them.

        The same draws for both: each has both models' counts of an image.
        """
        first, second = (
            CellCounts(*([part[name][rows[example]] for example in self._ids] for name in ("target", COLUMN)))
            for part, rows in zip(self._columns, self._rows, strict=True)
        )
        draws = draw(first.n, first.resamples(models=2), self._seed)
        return _means(first, draws), _means(second, draws)

    @cached_property
    def _differences(self) -> dict[str, PixelDifference]:
        first, second = self._sampled
        whole, *sampled = map(_less, second, first)
        found = {}
        for name, value in whole.items():
            values = sorted(one for less in sampled if (one := less[name]) is not None)
            if value is not None and values:
                found[name] = PixelDifference(difference_from(value, values), len(values))
        return found


def _means(counts: CellCounts, draws: Sequence[Draw] = ()) -> list[Ratios]:
    """The means over cells: of all images, then of each resample."""
    cells = list(counts.ratios(draws))
    sampled = [mean_ratios(resample) for resample in zip(*(cell.sampled for cell in cells), strict=True)]
    return [mean_ratios([cell.whole for cell in cells]), *sampled]


def _less(some: Ratios, others: Ratios) -> Ratios:
    pairs = {name: (value, others[name]) for name, value in some.items()}
    return {name: None if a is None or b is None else a - b for name, (a, b) in pairs.items()}
