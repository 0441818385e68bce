"""Metrics of summed pixel counts, and paired differences of two models, in pure Python.

Long et al., "Fully convolutional networks for semantic segmentation", CVPR 2015, section 5: counts are added
over all images before anything is divided. Intervals and tests of differences are from `jackknife.py`: both
models' counts of an image are left out together.

Legend: n images, K classes, G groups of images to leave out, at most 100.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.service.metrics.statistics.estimates import groups
from assay.service.metrics.statistics.jackknife import (
    TestedDifference,
    jackknife_variance,
    student_difference,
)

COUNTS = ("intersection", "target", "predicted")
BYTES = 8  # A count, and every sum of counts, fits into so many bytes.

Counts = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Pixels of each class that were found, that there are, and that were predicted, (K,) each."""


Ratios = dict[str, float | None]
"""`miou`, `mean_accuracy` and `pixel_accuracy`; None where no pixel has a class."""


def images_of(columns: Mapping[str, Sequence[Any]]) -> list[Counts]:
    """The counts of each image. Raises ValueError: a column is missing, empty, or of another shape."""
    missing = [name for name in COUNTS if not len(columns.get(name, ()))]
    if missing:
        raise ValueError(f"segmentation metrics need {', '.join(COUNTS)}; missing or empty: {missing}")
    lengths = {len(columns[name]) for name in COUNTS}
    classes = {len(row) for name in COUNTS for row in columns[name]}
    if len(lengths) != 1 or len(classes) != 1:
        found = f"n in {sorted(lengths)}, K in {sorted(classes)}"
        raise ValueError(f"{', '.join(COUNTS)} must have one shape (n, K); got {found}")
    return list(zip(*(columns[name] for name in COUNTS), strict=True))


def pack(counts: Iterable[int], size: int) -> int:
    """Counts as the digits of an integer: sums of these are sums of counts, at the speed of C."""
    return int.from_bytes(array(_CODES[size], counts).tobytes(), sys.byteorder)


def unpack(number: int, digits: int, size: int) -> array[int]:
    """The digits of a sum."""
    return array(_CODES[size], number.to_bytes(size * digits, sys.byteorder))


_CODES = {4: "I", 8: "Q"}


def ratios(sums: Counts) -> Ratios:
    """`miou`, `mean_accuracy` and `pixel_accuracy` of summed counts; None where no pixel has a class."""
    found, there, predicted = sums
    union = [t + p - i for i, t, p in zip(found, there, predicted, strict=True)]
    return _ratios(found, union, there)


def _ratios(found: Sequence[int], union: Sequence[int], there: Sequence[int]) -> Ratios:
    return {
        "miou": _mean_ratio(found, union),
        "mean_accuracy": _mean_ratio(found, there),
        "pixel_accuracy": _mean_ratio([sum(found)], [sum(there)]),
    }


def _mean_ratio(parts: Sequence[int], wholes: Sequence[int]) -> float | None:
    """Mean of part / whole where the whole is above 0; None where none is."""
    shares = [part / whole for part, whole in zip(parts, wholes, strict=True) if whole]
    return sum(shares) / len(shares) if shares else None


def total(images: Sequence[Counts]) -> Counts:
    """The counts of all images together."""
    found, there, predicted = (
        [sum(column) for column in zip(*part, strict=True)] for part in zip(*images, strict=True)
    )
    return found, there, predicted


def left_out_ratios(images: Sequence[Counts]) -> tuple[Ratios, list[Ratios]]:
    """The ratios of all images, and those without each group of `groups(n)`."""
    # The groups depend on the order of the images. Cost: n additions of integers with a digit for each count.
    classes, n = len(images[0][0]), len(images)
    packed = list(map(_packed, images))
    sums = sum(packed)
    outs = groups(n) if n > 1 else []
    left_out = [_unpacked(sums - sum(packed[place] for place in out), classes) for out in outs]
    return ratios(_unpacked(sums, classes)), list(map(ratios, left_out))


def _packed(image: Counts) -> int:
    return pack([count for part in image for count in part], BYTES)


def _unpacked(number: int, classes: int) -> Counts:
    digits = unpack(number, 3 * classes, BYTES)
    return digits[:classes], digits[classes : 2 * classes], digits[2 * classes :]


def paired_differences(first: Sequence[Counts], second: Sequence[Counts]) -> dict[str, TestedDifference]:
    """Differences of two models by metric, second minus first, as fractions with intervals.

    They are of the metrics that are defined for both. The same images in any order give the same bits. Raises
    ValueError: lengths differ, or there is no image.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"there must be as many images of both models: got {len(first)} and {len(second)}")
    pairs = sorted(zip(map(_plain, first), map(_plain, second), strict=True))
    measured, other = (left_out_ratios([pair[side] for pair in pairs]) for side in (0, 1))
    return differences_of(measured, other, len(pairs))


def differences_of(
    first: tuple[Ratios, Sequence[Ratios]], second: tuple[Ratios, Sequence[Ratios]], n: int
) -> dict[str, TestedDifference]:
    """The differences by metric, from the ratios of all n images, and those without each group, of both."""
    (whole, others), (second_whole, second_others) = first, second
    found = {}
    for name, value in whole.items():
        other = second_whole[name]
        if value is None or other is None:
            continue
        pairs = ((a[name], b[name]) for a, b in zip(others, second_others, strict=True))
        known = [b - a for a, b in pairs if a is not None and b is not None]
        variances = [jackknife_variance(known)] if len(known) > 1 else []
        found[name] = student_difference(other - value, variances, n)
    return found


def _plain(counts: Counts) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    found, there, predicted = map(tuple, counts)
    return found, there, predicted
