"""Comparisons of segmentation jobs under corruptions: paired by image, all its corruptions together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from assay.service.contract.results import EvaluationResult, Metric, data_label
from assay.service.metrics.compare.comparison import JobResults, compare
from assay.service.metrics.paired import JackknifeTest
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics.corrupted_pixel_counts import CellCounts, mean_ratios, write
from tests.support.cell_counts import image

NAMES = ("miou", "mean_accuracy", "pixel_accuracy")
DATA = {"name": "shapes", "params": {}}


def counts(right: float, rows: Sequence[int]) -> tuple[list[list[int]], list[str]]:
    images = [image(row, right=right) for row in rows]
    return [target for target, _ in images], [write(cells) for _, cells in images]


def means(right: float, rows: Sequence[int]) -> dict[str, Any]:
    return mean_ratios([cell.whole for cell in CellCounts(*counts(right, rows)).ratios()])


def job(name: str, right: float, rows: Sequence[int], **values: float) -> JobResults:
    """A job whose images are these rows, in this order; `values` replace reported metrics."""
    reported = {f"corrupted_{key}": value for key, value in means(right, rows).items()} | values
    shared: dict[str, Any] = {"n": len(rows), "ci_low": 0, "ci_high": 1, "ci_method": "bootstrap"}
    metrics = {key: Metric(value=reported[key], higher_is_better=True, **shared) for key in reported}
    result = EvaluationResult(
        name="corruptions",
        params={"corruptions": ["fog", "snow", "frost"], "severities": [3]},
        data=DATA,
        protocol="pixel",
        backend="native",
        metrics=metrics,
        seconds=1.0,
        forward_passes=1,
        backward_passes=0,
    )
    target, texts = counts(right, rows)
    columns: dict[str, Sequence[Any]] = {"id": [f"image {row}" for row in rows], "target": target}
    # Columns of the clean images, unused by the metrics here.
    columns |= {"intersection": target, "predicted": target, "corrupted_pixels": texts}
    return JobResults(
        name,
        True,
        {0: result},
        lambda _: columns,
        {0: TABLES["corrupted_segmentation"]},
        {data_label(DATA): "hash"},
    )


def test_differences_are_those_of_the_means_with_intervals_and_a_test() -> None:
    rows = compare([job("a", 0.5, range(30)), job("b", 0.7, range(30))]).rows
    assert [row.metric for row in rows] == [f"corrupted_{name}" for name in NAMES]
    for row, name in zip(rows, NAMES, strict=True):
        difference = means(0.7, range(30))[name] - means(0.5, range(30))[name]
        assert row.difference == pytest.approx(difference, abs=1e-15)
        assert isinstance(row.test, JackknifeTest)
        assert (row.test.n, row.test.df, row.ci_method) == (30, 29, "t")
        assert row.ci_low is not None
        assert row.ci_high is not None
        assert 0 < row.ci_low < difference < row.ci_high
        assert row.test.p_value < 0.01


def test_a_model_does_not_differ_from_itself() -> None:
    for row in compare([job("a", 0.6, range(20)), job("b", 0.6, range(20))]).rows:
        assert (row.difference, row.ci_low, row.ci_high, row.ci_method) == (0, None, None, "no_spread")
        assert row.test is not None
        assert row.test.p_value == 1


def test_the_order_of_the_examples_does_not_matter() -> None:
    shuffled = random.Random(0).sample(range(30), 30)
    first = compare([job("a", 0.5, range(30)), job("b", 0.7, range(30))])
    assert compare([job("a", 0.5, shuffled), job("b", 0.7, range(30))]).rows == first.rows


def test_of_jobs_that_share_some_images_these_are_compared() -> None:
    found = compare([job("a", 0.5, range(20)), job("b", 0.7, range(10, 30))])
    assert [warning.code for warning in found.warnings] == ["partial_overlap"]
    row = found.rows[0]
    common = means(0.7, range(10, 20))["miou"] - means(0.5, range(10, 20))["miou"]
    assert row.difference == pytest.approx(common, abs=1e-15)
    assert row.test is not None
    assert row.test.n == 10


def test_a_value_that_the_counts_do_not_give_is_not_tested() -> None:
    jobs = [job("a", 0.5, range(12)), job("b", 0.7, range(12), corrupted_miou=0.25)]
    by_metric = {row.metric: row.test for row in compare(jobs).rows}
    assert by_metric["corrupted_miou"] is None
    assert by_metric["corrupted_mean_accuracy"] is not None
