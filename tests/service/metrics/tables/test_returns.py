"""Means of returns, their paired difference, and what has no value."""

from __future__ import annotations

import pytest

from assay.service.metrics.paired import Pair
from assay.service.metrics.table import Context
from assay.service.metrics.tables.returns import UNDEFINED, Returns

TABLE = Returns()


def rows(shift: float = 0.0, **more: object) -> dict[str, list[object]]:
    values = [float(number % 7) + shift for number in range(30)]
    return {
        "id": [f"episode-{number:04d}" for number in range(30)],
        "return": [100 * value for value in values],
        "normalized": list(values),
        "length": [10 + number for number in range(30)],
        "forward": [1] * 30,
        "backward": [0] * 30,
    } | more  # type: ignore[return-value]


def test_means_with_intervals() -> None:
    metrics = TABLE.summarise(rows(), Context()).metrics
    mean = sum(number % 7 for number in range(30)) / 30
    assert set(metrics) == {"normalized_return", "return", "episode_length"}
    assert metrics["normalized_return"].value == pytest.approx(mean)
    assert metrics["return"].value == pytest.approx(100 * mean)
    assert metrics["episode_length"].value == 24.5
    for metric in metrics.values():
        assert metric.n == 30
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert metric.ci_low < metric.value < metric.ci_high
    assert [metrics[name].higher_is_better for name in ("return", "episode_length")] == [True, False]
    assert set(TABLE.summarise(rows(action_change=[0.5] * 30), Context()).metrics) == set(TABLE.units)


def test_an_episode_without_a_return_leaves_the_mean_without_a_value() -> None:
    broken = rows()
    broken["return"][3] = broken["normalized"][3] = None
    metrics = TABLE.summarise(broken, Context()).metrics
    assert metrics["return"].value is metrics["normalized_return"].value is None
    assert metrics["episode_length"].value == 24.5
    assert TABLE.undefined["normalized_return"] == UNDEFINED


def test_policies_are_compared_episode_by_episode() -> None:
    first, second = rows(), rows(0.5)
    paired = TABLE.paired(Pair("returns", first, second))
    mean = sum(first["normalized"]) / 30  # type: ignore[arg-type]
    found = paired.difference("normalized_return", (mean, mean + 0.5))
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert (found.low, found.method) == (None, "no_spread")  # every episode differs by as much
    assert found.test.p_value < 0.002
    assert found.test.n == 30
    assert paired.difference("normalized_return", (mean, mean)) is None  # not what the rows say
    assert paired.difference("top1", (mean, mean)) is None
    without = rows()
    without["normalized"][0] = None
    assert TABLE.paired(Pair("returns", without, second)).difference("normalized_return", (None, 1.0)) is None
