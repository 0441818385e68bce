"""Metrics of summed pixel counts, and paired differences of two models, in pure Python.

Long et al., "Fully convolutional networks for semantic segmentation", CVPR 2015, section 5: counts are added
over all images before anything is divided. The intervals and tests of differences are those of
`intervals.difference_from`: images are drawn, and each draw has both models' counts of an image.

Legend: n images, K classes, R resamples.
"""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from assay.service.metrics.estimates import groups, resamples
from assay.service.metrics.intervals import PairedDifference, difference_from

COUNTS = ("intersection", "target", "predicted")
MIN_RESAMPLES = 500
# A resample adds n images of many counts each; beyond this many additions R shrinks.
ADDITIONS = 1_500_000_000

Counts = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Pixels of each class that were found, that there are, and that were predicted, (K,) each."""


class PixelDifference(NamedTuple):
    """Second less first of one metric, and the number of resamples behind the interval."""

    difference: PairedDifference
    resamples: int


def images_of(columns: Mapping[str, Sequence[Any]]) -> list[Counts]:
    """The counts of each image.

    Raises:
        ValueError: a column is missing, empty, or of another shape.
    """
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
    """Counts as the digits of one integer: sums of these are sums of counts, at the speed of C.

    Args:
        counts: Each, and every sum of them, fits into a digit.
        size: Bytes of a digit, 4 or 8.
    """
    return int.from_bytes(array(_CODES[size], counts).tobytes(), sys.byteorder)


def unpack(number: int, digits: int, size: int) -> array[int]:
    """The digits of a sum."""
    return array(_CODES[size], number.to_bytes(size * digits, sys.byteorder))


_CODES = {4: "I", 8: "Q"}


def ratios(sums: Counts) -> dict[str, float | None]:
    """`miou`, `mean_accuracy` and `pixel_accuracy` of summed counts; None where no pixel has a class."""
    found, there, predicted = sums
    union = [t + p - i for i, t, p in zip(found, there, predicted, strict=True)]
    return _ratios(found, union, there)


def _ratios(found: Sequence[int], union: Sequence[int], there: Sequence[int]) -> dict[str, float | None]:
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


def paired_differences(
    first: Sequence[Counts], second: Sequence[Counts], *, seed: int | str
) -> dict[str, PixelDifference]:
    """Differences of two models by metric, second minus first, with intervals.

    The same images in any order and the same seed give the same bits. Cost: R n additions of integers with a
    digit for each count; R is at most 2000 and shrinks to no less than 500 where that would take long.

    Args:
        first: One model's counts of each image.
        second: The other's, of the same images in the same order.
        seed: Key of the draws.

    Returns:
        Metrics that are defined for both; differences are of fractions.

    Raises:
        ValueError: lengths differ, or there is no image.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"there must be as many images of both models: got {len(first)} and {len(second)}")
    pairs = sorted(zip(map(_plain, first), map(_plain, second), strict=True))
    whole = _differences(total([one for one, _ in pairs]), total([other for _, other in pairs]))
    sampled, left_out = _resampled(pairs, random.Random(f"assay/bootstrap/{seed}"))
    return differences_of(whole, sampled, left_out, len(pairs))


def differences_of(
    whole: Mapping[str, float | None],
    sampled: Sequence[Mapping[str, float | None]],
    left_out: Sequence[Mapping[str, float | None]],
    n: int,
) -> dict[str, PixelDifference]:
    """The differences by metric, from those of all n images, of each resample, and without each group."""
    found = {}
    for name, value in whole.items():
        values = sorted(other for one in sampled if (other := one[name]) is not None)
        jackknife = [other for one in left_out if (other := one[name]) is not None]
        if value is None or not values or not jackknife:
            continue
        found[name] = PixelDifference(difference_from(value, values, jackknife, n), len(values))
    return found


def _plain(counts: Counts) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    found, there, predicted = map(tuple, counts)
    return found, there, predicted


def _differences(first: Counts, second: Counts) -> dict[str, float | None]:
    return _less(ratios(second), ratios(first))


def _less(some: Mapping[str, float | None], others: Mapping[str, float | None]) -> dict[str, float | None]:
    pairs = {name: (value, others[name]) for name, value in some.items()}
    return {name: None if a is None or b is None else a - b for name, (a, b) in pairs.items()}


def _resampled(
    pairs: Sequence[tuple[Any, Any]], draws: random.Random
) -> tuple[list[dict[str, float | None]], list[dict[str, float | None]]]:
    """The differences over n images drawn with replacement, R times, and without each group of them."""
    classes = _occurring(pairs)
    # For two models on the same label maps, the target pixels need to be added only once.
    alike = all(first[1] == second[1] for first, second in pairs)
    rows = [_digits(pair, classes, alike) for pair in pairs]
    n, k, digits = len(rows), len(classes), len(rows[0])
    size = 4 if n * max(map(max, rows)) < 2**32 else 8
    packed = [pack(row, size) for row in rows]

    def difference(number: int) -> dict[str, float | None]:
        sums = unpack(number, digits, size)
        parts = [sums[start : start + k] for start in range(0, digits, k)]
        first, second = (_ratios(*three) for three in ((*parts[:2], parts[4]), (*parts[2:4], parts[-1])))
        return _less(second, first)

    count, whole = resamples(n * digits, ADDITIONS, at_least=MIN_RESAMPLES), sum(packed)
    sampled = [difference(sum(draws.choices(packed, k=n))) for _ in range(count)]
    left_out = [difference(whole - sum(packed[place] for place in out)) for out in groups(n)]
    return sampled, left_out


def _occurring(pairs: Sequence[tuple[Any, Any]]) -> list[int]:
    """The classes of any target or predicted pixel; others do not affect any ratio."""
    sums = [total([pair[side] for pair in pairs]) for side in (0, 1)]
    wanted = range(len(sums[0][0]))
    return [c for c in wanted if any(side[1][c] or side[2][c] for side in sums)] or [0]


def _digits(pair: tuple[Any, Any], classes: Sequence[int], alike: bool) -> list[int]:
    """Intersections and unions of both models, then targets: of both, or once if they are equal."""
    digits: list[int] = []
    for found, there, predicted in pair:
        digits += [found[c] for c in classes]
        digits += [there[c] + predicted[c] - found[c] for c in classes]
    for _, there, _ in pair[:1] if alike else pair:
        digits += [there[c] for c in classes]
    return digits
