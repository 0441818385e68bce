"""From measured distances of heads to their mean, deviation, interval and plot."""

from __future__ import annotations

import math
import random
import statistics
from xml.etree import ElementTree

import pytest

from assay.service.metrics.table import Context
from assay.service.metrics.tables.head_distance import HeadDistance

SVG = "{http://www.w3.org/2000/svg}"


def test_head_distances_have_a_mean_and_a_deviation_over_examples_and_pairs() -> None:
    source = random.Random(1)
    pairs = [
        [[source.gauss(5.0 + layer, 1.0 + layer) for _ in range(3)] for layer in range(2)] for _ in range(400)
    ]
    rows = {
        "id": [f"{row:03d}" for row in range(400)],
        "distance": [[statistics.fmean(layer) for layer in row] for row in pairs],
        "squared_distance": [[statistics.fmean(x * x for x in layer) for layer in row] for row in pairs],
    }
    found = HeadDistance().summarise(rows, Context(evidence=[{"layers": [0, 1]}]))
    drawn = [[x for row in pairs for x in row[layer]] for layer in range(2)]
    for place, part in enumerate(found.breakdown):
        assert part.metrics["head_distance"].value == pytest.approx(statistics.fmean(drawn[place]))
        assert part.metrics["head_distance_std"].value == pytest.approx(statistics.pstdev(drawn[place]))
    deviation = found.metrics["head_distance_std"]
    assert deviation.value == pytest.approx(statistics.fmean(map(statistics.pstdev, drawn)))
    # Of m independent normal values the standard deviation has the standard error s / sqrt(2 m).
    error = math.hypot(1.0, 2.0) / 2 / math.sqrt(2 * 1200)
    width = deviation.ci_high - deviation.ci_low  # type: ignore[operator]
    assert width == pytest.approx(2 * 1.96 * error, rel=0.25)
    assert len(list(ElementTree.fromstring(found.plot or "").iter(f"{SVG}circle"))) == 2


def test_one_example_that_is_not_finite_takes_the_distance() -> None:
    rows = {"id": ["a", "b"], "distance": [[1.0], [None]], "squared_distance": [[1.0], [None]]}
    found = HeadDistance().summarise(rows, Context(evidence=[{"layers": [0]}]))
    assert {metric.value for metric in found.metrics.values()} == {None}
    assert "not finite" in found.warnings[0].message
