"""Pixel accuracy, mean class accuracy and mean intersection over union from the pixel counts of images.

Long et al., "Fully convolutional networks for semantic segmentation", CVPR 2015, section 5. Counts are added
over all images before anything is divided. Pure functions: the same columns give the same bits, in whatever
order the shards came. Plain Python, since results are merged by processes that hold no tensors.

Legend: n images, K classes, R resamples.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import quantiles
from typing import Any

from assay.service.contract.results import Metric
from assay.service.metrics.pixel_counts import Counts, images_of, pack, ratios, unpack

RESAMPLES = 2000
# A resample draws n images; beyond this many draws R shrinks.
DRAWS = 20_000_000
FEWEST_RESAMPLES = 200
# A count, and every sum of counts, fits into so many bytes.
BYTES = 8


def segmentation_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """Metrics of one evaluation.

    Args:
        columns: `intersection`, `target` and `predicted`, each (n, K), sorted by example id.

    Returns:
        `miou`: mean over classes of intersection / union; classes that occur in neither annotations nor
        predictions are left out.
        `mean_accuracy`: mean over the classes that occur of the share of their pixels that is right.
        `pixel_accuracy`: share of all pixels that is right.
        Fractions, with percentile bootstrap 95 % intervals over images; `n` counts images. The value is None
        when no pixel has a class.

    Raises:
        ValueError: a column is missing, empty, or of another shape.
    """
    images = images_of(columns)
    classes = len(images[0][0])
    total = _unpacked(sum(map(_packed, images)), classes)
    sampled = [ratios(row) for row in _resampled(images, classes)]
    return {
        name: _metric(value, [found[name] for found in sampled], len(images))
        for name, value in ratios(total).items()
    }


def _packed(image: Counts) -> int:
    return pack([count for part in image for count in part], BYTES)


def _unpacked(number: int, classes: int) -> Counts:
    digits = unpack(number, 3 * classes, BYTES)
    return digits[:classes], digits[classes : 2 * classes], digits[2 * classes :]


def _resampled(images: Sequence[Counts], classes: int) -> Iterator[Counts]:
    """The sums of n images that are drawn with replacement, R times."""
    packed, n = list(map(_packed, images)), len(images)
    draws = random.Random("metric/segmentation")
    for _ in range(min(RESAMPLES, max(FEWEST_RESAMPLES, DRAWS // n))):
        yield _unpacked(sum(draws.choices(packed, k=n)), classes)


def _metric(value: float | None, sampled: Sequence[float | None], n: int) -> Metric:
    known = [one for one in sampled if one is not None]
    # Of 39 cuts the first and the last leave 2.5 % outside.
    cuts = quantiles(known, n=40, method="inclusive") if value is not None else None
    return Metric(
        value=value,
        n=n,
        ci_low=cuts[0] if cuts else None,
        ci_high=cuts[-1] if cuts else None,
        ci_method="bootstrap",
        higher_is_better=True,
    )
