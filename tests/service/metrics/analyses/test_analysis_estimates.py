"""Means of examples, with intervals, for analyses."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from assay.service.metrics.analyses.analysis_estimates import exact, mean, undefined, unmeasured


def test_groups_of_many_examples_give_the_interval_of_single_ones() -> None:
    source = random.Random(1)
    values = [source.expovariate(1.0) for _ in range(20_000)]
    found = mean(values, "x")
    assert found.n == 20_000
    assert found.value == math.fsum(values) / 20_000
    width = 2 * 1.96 * statistics.pstdev(values) / math.sqrt(20_000)
    assert found.ci_high - found.ci_low == pytest.approx(width, rel=0.25)  # type: ignore[operator]
    assert found.ci_low < found.value < found.ci_high  # type: ignore[operator]
    assert mean(sorted(values), "x") == found  # in any order


def test_a_mean_needs_every_example() -> None:
    assert mean([1.0, None], "x").value is None
    assert mean([1.0, float("inf")], "x").value is None
    assert mean([1.0, 3.0], "x").value == 2.0


def test_a_warning_names_the_metrics_without_a_value() -> None:
    metrics = {"rank": exact(3.0), "cosine": undefined(4), "offset": undefined(4)}
    [warning] = unmeasured(metrics, "a key is not finite")
    assert warning.code == "undefined_metric"
    assert warning.message == "cosine, offset: no value, because a key is not finite"
    assert warning.evidence == {"metrics": ["cosine", "offset"]}
    assert unmeasured({"rank": exact(3.0)}, "a key is not finite") == []
