"""The score interval of a mean whose spread a few values carry; `test_score_intervals.py` tests `tango`."""

from __future__ import annotations

import math
import random

import pytest

from assay.service.metrics.statistics.intervals import mean_bounds, ratio_bounds
from assay.service.metrics.statistics.tango import carried_score, few_carry, tango


@pytest.mark.parametrize(("more", "fewer", "n"), [(1, 0, 355), (3, 0, 100), (2, 1, 355), (4, 1, 50)])
def test_of_equal_rare_values_it_is_tangos(more: int, fewer: int, n: int) -> None:
    values = [1.0] * more + [-1.0] * fewer + [0.0] * (n - more - fewer)
    assert carried_score(values) == pytest.approx(tango(more, fewer, n))
    moved = carried_score([3 + 0.5 * one for one in reversed(values)], 0.9)
    assert moved == pytest.approx([3 + 0.5 * end for end in tango(more, fewer, n, 0.9)])


def test_it_holds_the_mean_and_does_not_depend_on_the_order() -> None:
    rng = random.Random(3)
    for n in (10, 30, 355, 1000):
        for _ in range(50):
            rare = rng.choice([1, 2, 5]) / n
            values = [1e-3 * rng.gauss(0, 1) + (rng.random() < rare) * rng.expovariate(1) for _ in range(n)]
            low, high = carried_score(values)
            assert low < math.fsum(values) / n < high
            assert carried_score(rng.sample(values, n)) == (low, high)


def test_rare_values_of_other_sizes_are_weighed() -> None:
    """s = (1 + 8 + 8) / (1 + 4 + 4) times 2 / 2; without a balance they are as many on either side."""
    values = [1.0, 2.0] + [0.0] * 98
    scale = 2 * (0.125 + 1 + 1) / (0.25 + 1 + 1)
    more = max((1 + 4) / scale**2, 3 / scale)
    expected = tango((more + 3 / scale) / 2, (more - 3 / scale) / 2, 100)
    assert carried_score(values) == pytest.approx([scale * end for end in expected])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0] * 7 + [0.0] * 57, True),  # 7 of 64: fewer than 8, and than an eighth
        ([1.0] * 8 + [0.0] * 100, False),
        ([1.0] * 3 + [0.0] * 7, True),  # no fewer than an eighth, and the others are the same
        ([1.0] * 3 + [0.2 * (-1) ** place for place in range(7)], False),
        ([float(place) for place in range(10)], False),
        ([100.0] + [float(place) for place in range(-8, 9)], True),
    ],
)
def test_which_values_are_few(values: list[float], expected: bool) -> None:
    assert few_carry(values) is expected
    assert few_carry([1e200 * one for one in values]) is expected
    method = mean_bounds(values, seed=0).method
    assert (method == "tango_effective") is expected


@pytest.mark.parametrize("n", [10, 20, 355, 500, 501, 2000])
@pytest.mark.parametrize("rare", [1, 2, 3])
def test_up_to_three_equal_differences_are_no_evidence(n: int, rare: int) -> None:
    """All others differ by next to nothing, as linearised terms do, and resamples may have these alone."""
    rng = random.Random(n + rare)
    values = [1.0] * rare + [1e-6 * rng.gauss(0, 1) for _ in range(n - rare)]
    low, high, method = mean_bounds(values, seed=0)
    assert method == "tango_effective"
    assert low is not None
    assert high is not None
    assert low < 0 < rare / n < high < 12 / n


def test_a_ratio_of_which_few_pairs_carry_the_spread_has_the_interval_of_its_influences() -> None:
    pairs = [(5.0, 1.0)] * 2 + [(1.0, 1.0)] * 298
    assert ratio_bounds(pairs, seed=0) == mean_bounds([a for a, _ in pairs], seed=0)
    heavy = [(100.0, 2.0), (100.0, 2.0), *((float(one), 1.0) for one in range(1, 4) for _ in range(30))]
    low, high, method = ratio_bounds(heavy, seed=0)
    assert method == "tango_effective"
    assert low is not None
    assert high is not None
    assert low < math.fsum(a for a, _ in heavy) / math.fsum(b for _, b in heavy) < high
