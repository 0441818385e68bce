"""Pixel accuracy, mean class accuracy and mean intersection over union from the pixel counts of images.

Long et al., "Fully convolutional networks for semantic segmentation", CVPR 2015, section 5. Counts are added
over all images before anything is divided.

Legend: n images, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.answers import Answers
from assay.service.metrics.paired import Difference, Pair, PairedMetrics, Reported, Rows, agrees
from assay.service.metrics.statistics.estimates import jackknifed
from assay.service.metrics.statistics.jackknife import TestedDifference
from assay.service.metrics.statistics.pixel_counts import (
    Counts,
    images_of,
    left_out_ratios,
    paired_differences,
    ratios,
    total,
)
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["Segmentation"]

UNITS: Units = dict.fromkeys(("miou", "mean_accuracy", "pixel_accuracy"), "proportion")
NO_PIXEL = "no pixel has a class"


class Segmentation(OutcomeTable):
    """Pixel counts of unattacked images."""

    name = "segmentation"
    columns = columns_of("id forward backward intersection target predicted")
    units: ClassVar[Units] = UNITS
    undefined: ClassVar[Reasons] = dict.fromkeys(UNITS, NO_PIXEL)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies and mIoU."""
        del context
        return Summary(segmentation_metrics(rows))

    def paired(self, pair: Pair) -> PairedMetrics:
        """A jackknife over images."""
        return PairedPixels(pair)

    def unattacked(self, rows: Rows, context: Context) -> Answers | None:
        """The classes of all pixels."""
        del context
        return pixel_answers(rows, attacked=False)


def segmentation_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """Metrics of `intersection`, `target` and `predicted`, each (n, K), sorted by example id.

    `miou`: mean over classes of intersection / union; classes that occur in neither annotations nor
    predictions are left out. `mean_accuracy`: mean over the classes that occur of the share of their pixels
    that is right. `pixel_accuracy`: share of all pixels that is right. Fractions, with jackknife 95 %
    intervals over images; `n` counts images. The value is None when no pixel has a class.

    Raises ValueError: a column is missing, empty, or of another shape.
    """
    images = images_of(columns)
    whole, left_out = left_out_ratios(images)
    return {
        name: jackknifed(value, [one[name] for one in left_out], len(images)) for name, value in whole.items()
    }


def pixel_answers(columns: Rows, *, attacked: bool) -> Answers | None:
    """The classes of the pixels of unattacked images, from their counts; None where no pixel has a class."""
    found, there, predicted = total(images_of(columns))
    accuracy = segmentation_metrics(columns)["pixel_accuracy"]
    if accuracy.value is None or accuracy.ci_low is None or accuracy.ci_high is None:
        return None
    return Answers(
        right=sum(found),
        total=sum(there),
        bounds=(accuracy.ci_low, accuracy.ci_high),
        labels=dict(enumerate(there)),
        predictions=dict(enumerate(predicted)),
        examples=accuracy.n,
        attacked=attacked,
    )


class PairedPixels:
    """Two models' pixel counts of the same images."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`; a metric that does not follow from these counts has no difference here."""
        for whole, value in zip(self._wholes, reported, strict=True):
            if not agrees(whole.get(metric), value):
                return None
        found = self._differences.get(metric)
        return None if found is None else self._pair.jackknife(found)

    @cached_property
    def _images(self) -> list[list[Counts]]:
        return [images_of(columns) for columns in self._pair.columns]

    @cached_property
    def _wholes(self) -> list[dict[str, float | None]]:
        return [ratios(total(images)) for images in self._images]

    @cached_property
    def _differences(self) -> dict[str, TestedDifference]:
        first, second = (
            [images[rows[example]] for example in self._pair.ids]
            for images, rows in zip(self._images, self._pair.rows, strict=True)
        )
        return paired_differences(first, second)
