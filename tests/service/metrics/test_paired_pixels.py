"""Comparisons of segmentation jobs: paired by image, tested by the jackknife."""

from __future__ import annotations

import random
from typing import Any

import pytest

from assay.service.contract.results import EvaluationResult, Metric, data_label
from assay.service.metrics.compare.comparison import JobResults, compare
from assay.service.metrics.paired import JackknifeTest
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics.pixel_counts import paired_differences, ratios, total

NAMES = ("miou", "mean_accuracy", "pixel_accuracy")
DATA = {"name": "shapes", "params": {}}


def image(seed: int, right: float) -> Any:
    there = [20, 30, 50]
    found = [round(count * right * random.Random(seed + k).uniform(0.8, 1)) for k, count in enumerate(there)]
    return found, there, [found[0] + sum(there) - sum(found), *found[1:]]


def job(name: str, right: float, rows: list[int], **values: float) -> JobResults:
    """A job whose images are these rows, in this order; `values` replace reported metrics."""
    images = [image(row, right) for row in rows]
    reported = ratios(total(images)) | values
    metrics = {
        key: Metric(
            value=reported[key],
            n=len(rows),
            ci_low=0,
            ci_high=1,
            ci_method="bootstrap",
            higher_is_better=True,
        )
        for key in NAMES
    }
    result = EvaluationResult(
        name="sliding_window",
        params={"window": 512},
        data=DATA,
        protocol="pixel",
        backend="native",
        metrics=metrics,
        seconds=1.0,
        forward_passes=1,
        backward_passes=0,
    )
    found, there, predicted = (list(part) for part in zip(*images, strict=True))
    columns = {
        "id": [f"image {row}" for row in rows],
        "intersection": found,
        "target": there,
        "predicted": predicted,
    }
    return JobResults(
        name, True, {0: result}, lambda _: columns, {0: TABLES["segmentation"]}, {data_label(DATA): "d"}
    )


def test_every_metric_has_a_paired_difference() -> None:
    rows = list(range(20))
    comparison = compare([job("a", 0.7, rows), job("b", 0.8, rows[::-1])])
    first, second = ([image(row, right) for row in rows] for right in (0.7, 0.8))
    expected = paired_differences(first, second)
    assert [row.metric for row in comparison.rows] == list(NAMES)
    for row in comparison.rows:
        wanted = expected[row.metric]
        assert (row.difference, row.ci_low, row.ci_high) == (wanted.value, *wanted.bounds[:2])
        assert row.difference == pytest.approx(row.values[1].value - row.values[0].value)  # type: ignore[operator]
        assert isinstance(row.test, JackknifeTest)
        assert (row.test.name, row.test.n, row.test.df) == ("jackknife_t", 20, 19)
        assert wanted.p_value is not None
        assert row.test.p_value == wanted.p_value < 0.01
    assert comparison.warnings == []


def test_only_common_images_are_compared() -> None:
    comparison = compare([job("a", 0.7, [0, 1, 2, 3, 4]), job("b", 0.8, [3, 4, 5])])
    expected = paired_differences(
        [image(row, 0.7) for row in (3, 4)],
        [image(row, 0.8) for row in (3, 4)],
    )
    for row in comparison.rows:
        assert row.difference == expected[row.metric].value
        assert (row.ci_method, row.test) == ("too_few", None), "two images are too few for a test"
    assert [warning.code for warning in comparison.warnings] == ["partial_overlap"]
    apart = compare([job("a", 0.7, [0, 1]), job("b", 0.8, [2, 3])])
    assert all(row.test is None for row in apart.rows)


def test_a_metric_that_is_not_that_of_the_counts_is_not_paired() -> None:
    images = list(range(12))
    comparison = compare([job("a", 0.7, images), job("b", 0.8, images, miou=0.123)])
    tests = {row.metric: row.test for row in comparison.rows}
    assert tests["miou"] is None
    assert tests["pixel_accuracy"] is not None


def test_other_data_have_no_test() -> None:
    other = job("b", 0.8, [0, 1, 2])
    changed = JobResults("b", True, other.evaluations, other.columns, other.tables, {data_label(DATA): "e"})
    comparison = compare([job("a", 0.7, [0, 1, 2]), changed])
    assert all(row.test is None for row in comparison.rows)
    assert [warning.code for warning in comparison.warnings] == ["different_data"]
