"""The paired differences of two segmentation jobs on their common images."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from assay.service.metrics.pixel_counts import (
    COUNTS,
    PixelDifference,
    images_of,
    paired_differences,
    ratios,
    total,
)
from assay.service.paired_columns import PairedColumns

TOLERANCE = 1e-9


class PixelPairs(PairedColumns):
    """Two models' pixel counts of the same images."""

    @property
    def there(self) -> bool:
        """Whether both are of segmentation, and share images."""
        return bool(self._ids) and all(COUNTS[0] in columns for columns in self._columns)

    def difference(self, metric: str, reported: tuple[float | None, float | None]) -> PixelDifference | None:
        """How much better the second is than the first; None where that cannot be said.

        Args:
            metric: Its name; one that is not made of these counts has no difference here.
            reported: The values of the metric over all images of each job.
        """
        for whole, value in zip(self._wholes, reported, strict=True):
            known = whole.get(metric)
            if known is None or value is None or abs(known - value) > TOLERANCE:
                return None
        return self._differences.get(metric)

    @cached_property
    def _images(self) -> list[Any]:
        return [images_of(columns) for columns in self._columns]

    @cached_property
    def _wholes(self) -> list[dict[str, float | None]]:
        return [ratios(total(images)) for images in self._images]

    @cached_property
    def _differences(self) -> dict[str, PixelDifference]:
        first, second = (
            [images[rows[example]] for example in self._ids]
            for images, rows in zip(self._images, self._rows, strict=True)
        )
        return paired_differences(first, second, seed=self._seed)
