"""The worst case over candidates: against every possible choice on small cases, and by hand."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from assay.service.metrics.statistics.pixel_counts import Counts, ratios, total
from assay.service.metrics.tables.worst_case import (
    least_mean_accuracy,
    least_miou,
    least_pixel_accuracy,
    worst_case,
)

Images = list[list[Counts]]
NAMES = ("clean", "mce", "js")


def drawn(seed: int, images: int, classes: int, pixels: int = 12) -> Images:
    """Random label maps with three predictions of each; the first is the best one."""
    draws = random.Random(seed)
    found = []
    for _ in range(images):
        truth = [draws.randrange(classes) for _ in range(pixels)]
        candidates = []
        for share in (0.8, 0.5, 0.5):
            called = [label if draws.random() < share else draws.randrange(classes) for label in truth]
            candidates.append(counted(truth, called, classes))
        found.append(candidates)
    return found


def counted(truth: list[int], called: list[int], classes: int) -> Counts:
    hits = [label for label, other in zip(truth, called, strict=True) if label == other]
    return tuple([values.count(c) for c in range(classes)] for values in (hits, truth, called))  # type: ignore[return-value]


def value(images: Images, choice: Any, metric: str) -> float:
    found = ratios(total([image[place] for image, place in zip(images, choice, strict=True)]))[metric]
    assert found is not None
    return found


def every_choice(images: Images) -> Any:
    return product(range(len(images[0])), repeat=len(images))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(40))
def test_against_every_choice(seed: int) -> None:
    images = drawn(seed, images=4, classes=3)
    alone = {
        metric: [value(images, [place] * 4, metric) for place in range(3)]
        for metric in ("miou", "mean_accuracy", "pixel_accuracy")
    }
    exact = {
        metric: min(value(images, choice, metric) for choice in every_choice(images)) for metric in alone
    }
    assert value(images, least_pixel_accuracy(images), "pixel_accuracy") == exact["pixel_accuracy"]
    assert value(images, least_mean_accuracy(images), "mean_accuracy") == pytest.approx(
        exact["mean_accuracy"]
    )
    greedy = value(images, least_miou(images), "miou")
    assert exact["miou"] <= greedy <= min(alone["miou"])


def test_the_greedy_search_is_mostly_exact_on_small_cases() -> None:
    gaps = []
    for seed in range(200):
        images = drawn(seed, images=4, classes=3)
        exact = min(value(images, choice, "miou") for choice in every_choice(images))
        gaps.append(value(images, least_miou(images), "miou") - exact)
    # Measured: 198 are exact, the largest gap is 0.0014. An upper bound is all that is claimed.
    assert sum(gap < 1e-12 for gap in gaps) >= 190
    assert max(gaps) < 0.01


@pytest.mark.parametrize("seed", range(5))
def test_where_it_ends_no_single_image_would_lower_miou(seed: int) -> None:
    images = drawn(seed, images=25, classes=6)
    choice = least_miou(images)
    ended = value(images, choice, "miou")
    for row, place in product(range(25), range(3)):
        assert value(images, [*choice[:row], place, *choice[row + 1 :]], "miou") >= ended


def test_the_minimum_over_losses_is_not_the_joint_worst_case() -> None:
    # Each loss spoils one of two images, and another metric's choice would not do.
    right, wrong = counted([0, 1], [0, 1], 2), counted([0, 1], [1, 0], 2)
    images = [[right, wrong, right], [right, right, wrong]]
    assert [value(images, [place] * 2, "pixel_accuracy") for place in range(3)] == [1.0, 0.5, 0.5]
    assert least_pixel_accuracy(images) == least_miou(images) == [1, 2]
    assert value(images, least_miou(images), "miou") == 0


def test_metrics_differ_in_what_is_worst() -> None:
    # Losing the one pixel of the rare class costs mIoU more, and pixel accuracy less.
    truth = [0] * 9 + [1]
    clean, many, rare = (counted(truth, called, 2) for called in (truth, [1] * 2 + [0] * 7 + [1], [0] * 10))
    images = [[clean, many, rare]]
    assert least_pixel_accuracy(images) == [1]
    assert least_mean_accuracy(images) == [2]
    assert least_miou(images) == [2]


def columns_of(images: Images) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"worst": ["clean"] * len(images), "target": [i[0][1] for i in images]}
    for place, name in enumerate(NAMES):
        columns[f"{name}_intersection"] = [image[place][0] for image in images]
        columns[f"{name}_predicted"] = [image[place][2] for image in images]
    return columns


def test_metrics_of_the_columns() -> None:
    images = drawn(3, images=12, classes=4)
    found = worst_case(columns_of(images))
    for metric, choose in (
        ("miou", least_miou),
        ("mean_accuracy", least_mean_accuracy),
        ("pixel_accuracy", least_pixel_accuracy),
    ):
        made = found.metrics[metric]
        assert made.value == value(images, choose(images), metric)
        assert made.n == 12
        assert made.ci_low is not None
        assert made.ci_high is not None
        assert made.ci_low <= made.value <= made.ci_high
        for place, name in enumerate(NAMES):
            own = found.alone[name][metric].value
            assert own == value(images, [place] * 12, metric)
            assert made.value <= own
    assert worst_case(columns_of(images)) == found


def test_without_a_pixel_nothing_has_a_value() -> None:
    nothing = ([0, 0], [0, 0], [0, 0])
    found = worst_case(columns_of([[nothing] * 3] * 2))
    assert {metric.value for metric in found.metrics.values()} == {None}


def test_an_image_without_pixels_does_not_matter() -> None:
    nothing = ([0, 0, 0], [0, 0, 0], [0, 0, 0])
    images = drawn(1, images=5, classes=3)
    with_it = [*images[:2], [nothing] * 3, *images[2:]]
    without = least_miou(images)
    assert [place for row, place in enumerate(least_miou(with_it)) if row != 2] == without
