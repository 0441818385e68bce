"""Pixel counts of two models on the same images: against numpy, and by what a bootstrap must do."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from scipy import stats

from assay.service.metrics.statistics.intervals import NO_SPREAD
from assay.service.metrics.statistics.pixel_counts import (
    Counts,
    pack,
    paired_differences,
    ratios,
    total,
    unpack,
)

K = 6


def counts(n: int, seed: int, right: float, *, classes: int = 4) -> list[Counts]:
    """Images of 200 pixels, the same labels for every model; the last two classes never occur."""
    labels = np.random.default_rng(0).integers(0, classes, (n, 200))
    draws = np.random.default_rng(seed)
    predicted = np.where(draws.random((n, 200)) < right, labels, draws.integers(0, classes, (n, 200)))

    def of(which: Any, where: Any) -> list[int]:
        return [int(((which == k) & where).sum()) for k in range(K)]

    whole = np.ones(200, dtype=bool)
    return [(of(a, a == b), of(a, whole), of(b, whole)) for a, b in zip(labels, predicted, strict=True)]


def by_numpy(images: list[Counts], rows: Any) -> dict[str, float]:
    found, there, predicted = np.array(images, dtype=float)[rows].sum(0)
    union = there + predicted - found
    return {
        "miou": float((found[union > 0] / union[union > 0]).mean()),
        "mean_accuracy": float((found[there > 0] / there[there > 0]).mean()),
        "pixel_accuracy": float(found.sum() / there.sum()),
    }


def test_digits_of_a_sum_are_the_sums_of_the_digits() -> None:
    rows = [[1, 2**30, 7], [5, 2**31, 0]]
    for size in (4, 8):
        assert unpack(sum(pack(row, size) for row in rows), 3, size).tolist() == [6, 2**30 + 2**31, 7]


def test_differences_and_intervals_are_near_those_of_a_plain_bootstrap() -> None:
    first, second = counts(40, 1, 0.5), counts(40, 2, 0.6)
    found = paired_differences(first, second)
    draws = np.random.default_rng(3)
    samples = [draws.integers(0, 40, 40) for _ in range(2000)]
    for name, one in found.items():
        whole = by_numpy(second, slice(None))[name] - by_numpy(first, slice(None))[name]
        assert one.value == pytest.approx(whole, abs=1e-12)
        sampled = [by_numpy(second, rows)[name] - by_numpy(first, rows)[name] for rows in samples]
        width = np.quantile(sampled, 0.975) - np.quantile(sampled, 0.025)
        # For a difference this smooth; Student's t is a little wider than percentiles.
        assert one.bounds.low == pytest.approx(np.quantile(sampled, 0.025), abs=0.15 * width)
        assert one.bounds.high == pytest.approx(np.quantile(sampled, 0.975), abs=0.15 * width)
        assert (one.bounds.method, one.df) == ("t", 39)
        assert one.p_value is not None
        assert one.p_value < 0.001
    assert found.keys() == {"miou", "mean_accuracy", "pixel_accuracy"}


def test_the_variance_is_that_of_all_images_but_one() -> None:
    first, second = counts(12, 1, 0.5), counts(12, 2, 0.6)
    pairs = sorted(zip(first, second, strict=True))
    for name, one in paired_differences(first, second).items():
        kept = [np.delete(np.arange(12), image) for image in range(12)]
        models = [[pair[side] for pair in pairs] for side in (0, 1)]
        without = [by_numpy(models[1], rows)[name] - by_numpy(models[0], rows)[name] for rows in kept]
        error = float(np.sqrt(11 / 12 * ((without - np.mean(without)) ** 2).sum()))
        assert one.bounds.high == pytest.approx(one.value + float(stats.t.ppf(0.975, 11)) * error, abs=1e-9)
        assert one.p_value == pytest.approx(2 * float(stats.t.sf(abs(one.value) / error, 11)), abs=1e-9)


def test_pairing_sees_what_single_intervals_do_not() -> None:
    first = counts(60, 1, 0.5)
    # The second finds one pixel more in two of three images.
    second = [
        ([f[0] + 1, *f[1:]], t, [p[0] + 1, *p[1:]]) if f[0] < t[0] and at % 3 else (f, t, p)
        for at, (f, t, p) in enumerate(first)
    ]
    better = paired_differences(first, second)["pixel_accuracy"]
    assert better.bounds.low is not None
    assert better.bounds.high is not None
    assert 0 < better.bounds.low <= better.value <= better.bounds.high < 0.01
    same = paired_differences(first, first)["miou"]
    assert (same.value, same.bounds, same.p_value) == (0.0, NO_SPREAD, 1.0)


def test_other_label_maps_large_counts_and_the_order_of_images() -> None:
    first = counts(30, 1, 0.5)
    other = [tuple([1000 * c for c in part] for part in image) for image in counts(30, 2, 0.7)]
    found = paired_differences(first, other)["miou"]  # type: ignore[arg-type]
    expected = by_numpy(other, slice(None))["miou"] - by_numpy(first, slice(None))["miou"]  # type: ignore[arg-type]
    assert found.value == pytest.approx(expected, abs=1e-12)
    huge = [tuple([2**36 * c for c in part] for part in image) for image in first]
    assert paired_differences(huge, other) == paired_differences(first, other)  # type: ignore[arg-type]
    order = list(range(30))
    random.Random(0).shuffle(order)
    shuffled = paired_differences([first[i] for i in order], [other[i] for i in order])  # type: ignore[arg-type]
    assert shuffled == paired_differences(first, other)  # type: ignore[arg-type]


def test_images_without_any_class() -> None:
    nothing: list[Counts] = [([0] * K, [0] * K, [0] * K)] * 3
    assert paired_differences(nothing, nothing) == {}
    assert ratios(total(nothing)) == {"miou": None, "mean_accuracy": None, "pixel_accuracy": None}
    with pytest.raises(ValueError, match="as many images"):
        paired_differences([], [])
    with pytest.raises(ValueError, match="got 3 and 2"):
        paired_differences(nothing, nothing[:2])
