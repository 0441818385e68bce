"""The statistics against published values, closed forms and exhaustive enumeration."""

from __future__ import annotations

import itertools
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from scipy import stats

from assay.service.metrics.statistics import intervals
from assay.service.metrics.statistics.intervals import (
    mean_bounds,
    median_bounds,
    median_difference,
    median_error,
    ratio_bounds,
    wilson,
)
from assay.service.metrics.statistics.paired_tests import mcnemar, sign_flip


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Newcombe 1998, table I, method 3 (Wilson without continuity correction).
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_equals_newcombes_table(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_wilson_solves_the_score_equation() -> None:
    z = 1.959963984540054
    for successes, n in [(3, 10), (360, 1000), (9999, 10000)]:
        p = successes / n
        for end in wilson(successes, n):
            assert abs(p - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n), rel=1e-9)


def test_wilson_is_symmetric_and_exact_at_its_edges() -> None:
    low, high = wilson(7, 30)
    assert wilson(23, 30) == (pytest.approx(1 - high), pytest.approx(1 - low))
    assert wilson(0, 5)[0] == 0.0
    assert wilson(5, 5)[1] == 1.0
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(7, 30, 0.99)[0] < low


@pytest.mark.parametrize("arguments", [(-1, 5), (6, 5), (0, -1), (1, 2, 0.0), (1, 2, 1.0), (1, 2, math.nan)])
def test_wilson_refuses_impossible_input(arguments: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="got"):
        wilson(*arguments)  # type: ignore[arg-type]


def test_mcnemar_equals_enumeration() -> None:
    for n in range(1, 25):
        for b in range(n + 1):
            tail = sum(math.comb(n, j) for j in range(min(b, n - b) + 1))
            assert mcnemar(b, n - b) == pytest.approx(min(1.0, 2 * tail / 2**n), rel=1e-13)


def test_mcnemar_of_large_counts() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(10, 2) == pytest.approx(158 / 4096, rel=1e-14)
    assert mcnemar(2, 10) == mcnemar(10, 2)
    # Normal approximation with continuity correction, good to some per mille at this size.
    b, c = 25200, 24800
    assert mcnemar(b, c) == pytest.approx(math.erfc((b - c - 1) / math.sqrt(2 * (b + c))), rel=2e-3)
    assert mcnemar(0, 5000) == 0.0
    with pytest.raises(ValueError, match="b=-1"):
        mcnemar(-1, 3)


def of_mean(values: list[float], seed: str = "x") -> tuple[float, float, str]:
    low, high, method = mean_bounds(values, seed=seed)
    assert low is not None
    assert high is not None
    return low, high, method


def test_an_interval_of_a_mean_is_near_the_normal_one_by_every_method() -> None:
    rng = random.Random(1)
    for n, method in ((400, "studentised"), (600, "t"), (9, "t")):
        values = [rng.gauss(2.0, 1.0) for _ in range(n)]
        mean = math.fsum(values) / n
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
        half = stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n)
        low, high, found = of_mean(values)
        assert found == method
        assert (low, high) == (
            pytest.approx(mean - half, abs=half / 6),
            pytest.approx(mean + half, abs=half / 6),
        )


def test_the_studentised_interval_reaches_further_on_the_side_of_the_tail() -> None:
    rng = random.Random(2)
    values = [rng.lognormvariate(0, 1) for _ in range(50)]
    mean = math.fsum(values) / 50
    low, high, _ = of_mean(values)
    assert high - mean > 1.3 * (mean - low)


@pytest.mark.parametrize("n", [5, 60, 501])
def test_a_ratio_to_ones_is_a_mean(n: int) -> None:
    values = [math.sqrt(number * 7919 % 101) for number in range(n)]
    low, high, method = ratio_bounds([(value, 1) for value in values], seed=1)
    expected = mean_bounds(values, seed=1)
    assert method == expected.method
    assert (low, high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_a_ratio_resamples_its_denominator_too() -> None:
    """Some large denominators: wider than the interval of the linearised ratio, for any scale and order."""
    pairs = [
        (4.0 * size + (number * 7919 % 7 - 3) * size, size)
        for number, size in enumerate([1] * 30 + [40] * 30)
    ]
    low, high, method = ratio_bounds(pairs, seed=1)
    assert ratio_bounds(pairs[::-1], seed=1) == (low, high, method) == (low, high, "studentised")
    total, whole = (sum(column) for column in zip(*pairs, strict=True))
    ratio = total / whole
    linear = mean_bounds([ratio + (a - ratio * b) * len(pairs) / whole for a, b in pairs], seed=1)
    assert None not in (low, high, linear.low, linear.high)
    assert low < linear.low < ratio < linear.high < high  # type: ignore[operator]
    scaled = ratio_bounds([(10 * a, b) for a, b in pairs], seed=1)
    assert (scaled.low, scaled.high) == (pytest.approx(10 * low), pytest.approx(10 * high))  # type: ignore[operator]


def test_a_ratio_without_spread_or_denominator_has_no_interval() -> None:
    assert ratio_bounds([(2.0 * size, size) for size in range(1, 30)], seed=0).method == "no_spread"
    with pytest.raises(ValueError, match="a denominator above 0; got 0"):
        ratio_bounds([(1.0, 0)] * 20, seed=0)


def test_one_value_or_equal_values_have_no_interval() -> None:
    for values in ([2.5] * 60, [0.1 + 0.2, 0.3], [0.0] * 3):
        assert mean_bounds(values, seed=0) == (None, None, "no_spread")
    assert mean_bounds([1.0], seed=0) == (None, None, "too_few")
    assert median_bounds([1.0] * 5) == (None, None, "too_few")
    assert median_bounds([1.0] * 60) == (None, None, "no_spread")


def test_counting_path_and_direct_path_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [-1.0] * 30 + [0.0] * 140 + [1.0] * 50
    monkeypatch.setattr(intervals, "STUDENTISED_RESAMPLES", 3000)
    counted = of_mean(values)
    monkeypatch.setattr(intervals, "MULTINOMIAL_VALUES", 0)
    direct = of_mean(values)
    assert counted[:2] == (pytest.approx(direct[0], abs=0.01), pytest.approx(direct[1], abs=0.01))


def test_the_interval_of_a_median_is_between_order_statistics() -> None:
    values = [float(value) for value in range(1, 102)]
    low, high, method = median_bounds(values)
    assert method == "order_statistics"
    # Ranks 41 and 61 cover 95.4 %, ranks 42 and 60 cover 93.9 %.
    assert (low, high) == (pytest.approx(41.3, abs=0.4), pytest.approx(60.7, abs=0.4))
    assert median_bounds(values[::-1]) == (low, high, method)
    assert median_bounds(values[:5]) == (None, None, "too_few")
    with pytest.raises(ValueError, match="finite"):
        median_bounds([1.0, math.nan])


@pytest.mark.parametrize("n", [6, 7, 12, 51])
def test_the_interval_of_a_median_covers_it(n: int) -> None:
    rng = random.Random(n)
    hits = 0
    for _ in range(2000):
        low, high, _ = median_bounds([rng.gauss(0, 1) for _ in range(n)])
        assert low is not None
        assert high is not None
        hits += low <= 0 <= high
    assert hits / 2000 == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("n", [6, 100, 101, 1074, 1075, 5000, 60_000])
def test_the_interval_of_a_median_has_the_ranks_of_the_binomial(n: int) -> None:
    low, high, method = median_bounds([float(value) for value in range(1, n + 1)])
    assert method == "order_statistics"
    assert low is not None
    assert high is not None
    rank = int(stats.binom.ppf(0.025, n, 0.5))
    assert rank <= low <= rank + 1
    assert high == pytest.approx(n + 1 - low)


def test_the_error_of_a_median_is_that_of_the_published_example() -> None:
    # The manual of the R package statpsych, ci.median.ps.
    first = [21, 4, 9, 12, 35, 18, 10, 22, 24, 1, 6, 8, 13, 16, 19]
    second = [67, 28, 30, 28, 52, 40, 25, 37, 44, 10, 14, 20, 28, 40, 51]
    assert median_error(first) == pytest.approx(3.085608, abs=1e-6)
    assert median_error(second) == pytest.approx(4.509735, abs=1e-6)


def test_the_difference_of_medians_counts_signs() -> None:
    # Of the signs around 13 and 30, 13 agree and none differ; a median itself has none.
    first = dict(enumerate([21, 4, 9, 12, 35, 18, 10, 22, 24, 1, 6, 8, 13, 16, 19]))
    second = dict(enumerate([67, 28, 30, 28, 52, 40, 25, 37, 44, 10, 14, 20, 28, 40, 51]))
    ids = {str(place): place for place in range(15)}
    sides = [{one: float(side[place]) for one, place in ids.items()} for side in (first, second)]
    found = median_difference(*sides)
    errors = [median_error(list(side.values())) for side in sides]
    error = math.sqrt(errors[0] ** 2 + errors[1] ** 2 - 2 * 13 / 15 * errors[0] * errors[1])
    assert found.value == 17
    assert found.bounds == (
        pytest.approx(17 - 1.959964 * error),
        pytest.approx(17 + 1.959964 * error),
        "price_bonett",
    )
    assert found.p_value == pytest.approx(2 * float(stats.norm.sf(17 / error)))
    apart = {f"other {one}": value for one, value in sides[1].items()}
    error = math.hypot(*errors)
    assert median_difference(sides[0], apart).bounds.high == pytest.approx(17 + 1.959964 * error)


@pytest.mark.parametrize(
    ("second", "method", "p"),
    [(range(9), "too_few", None), ([1.0] * 12, "no_spread", 1.0), ([2.0] * 12, "no_spread", None)],
)
def test_medians_without_an_interval(second: list[float], method: str, p: float | None) -> None:
    ids = [str(place) for place in range(12)]
    other = dict(zip(ids, second, strict=False))
    found = median_difference(dict.fromkeys(ids, 1.0), other)
    assert (found.bounds, found.p_value) == ((None, None, method), p)


@pytest.mark.sampled
@pytest.mark.parametrize("n", [*range(1, 13), 60, 3000])
@pytest.mark.parametrize("m", [1, 2, 9, 10, 2000])
def test_medians_of_any_numbers_of_examples_have_a_difference(n: int, m: int) -> None:
    rng = random.Random(n)
    sides = [{str(place): rng.random() for place in range(count)} for count in (n, m)]
    found = median_difference(*sides)
    assert (found.bounds.low is None) == (min(n, m) < 10)
    assert (found.bounds.method == "too_few") == (min(n, m) < 10)


def test_differences_of_medians_cover_and_are_seldom_significant() -> None:
    rng = random.Random(4)
    held = alarms = 0
    for _ in range(1000):
        shared = [rng.gauss(0, 1) for _ in range(60)]
        sides = [
            {str(k): math.exp(one + rng.gauss(0, 1)) for k, one in enumerate(shared) if rng.random() < 0.7}
            for _ in "ab"
        ]
        found = median_difference(*sides)
        assert found.bounds.low is not None
        assert found.bounds.high is not None
        assert found.p_value is not None
        held += found.bounds.low <= 0 <= found.bounds.high
        alarms += found.p_value <= 0.05
    assert held / 1000 == pytest.approx(0.955, abs=0.02)
    assert alarms == 1000 - held


def test_sign_flips_equal_mcnemar_and_count_every_pattern() -> None:
    for b, c in [(0, 0), (3, 1), (0, 5), (6, 6), (10, 2)]:
        assert sign_flip([1.0] * b + [-1.0] * c + [0.0] * 7) == pytest.approx(mcnemar(b, c), rel=1e-12)
    moved = [0.5, -1.25, 3.0, 2.0, -0.25]
    patterns = [abs(sum(s * m for s, m in zip(signs, moved, strict=True)))
                for signs in itertools.product((1, -1), repeat=5)]  # fmt: skip
    assert sign_flip(moved) == sum(one >= abs(sum(moved)) for one in patterns) / 32
    assert sign_flip([0.1] * 400) == pytest.approx(math.erfc(20 / math.sqrt(2)), rel=1e-9)
    with pytest.raises(ValueError, match="finite"):
        sign_flip([math.inf])


def test_same_seed_same_bits_in_any_order_and_process() -> None:
    values = [math.sin(i) for i in range(100)]
    first = mean_bounds(values, seed="job/0")
    assert mean_bounds(values[::-1], seed="job/0") == first
    assert mean_bounds(values, seed="job/1") != first
    script = (
        "import math; from assay.service.metrics.statistics.intervals import mean_bounds as b;"
        "print(repr(tuple(b([math.sin(i) for i in range(100)], seed='job/0'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "PYTHONHASHSEED": "4"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == repr(tuple(first))


@pytest.mark.parametrize(
    ("values", "confidence"), [([], 0.95), ([math.nan], 0.95), ([math.inf], 0.95), ([1.0], 1.0)]
)
def test_refuses_impossible_input(values: list[float], confidence: float) -> None:
    with pytest.raises(ValueError, match=r"interval needs|confidence"):
        mean_bounds(values, seed=0, confidence=confidence)


@pytest.mark.parametrize(
    ("n", "rank"),
    # c of Price and Bonett 2001: (n + 1) / 2 - sqrt(n) to the nearest whole number.
    [(2, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 2), (9, 2), (10, 2), (11, 3), (12, 3), (13, 3), (14, 4),
     (15, 4), (16, 5), (17, 5), (18, 5), (19, 6), (20, 6), (21, 6), (22, 7), (23, 7), (24, 8), (25, 8),
     (26, 8), (27, 9), (28, 9), (29, 10), (30, 10), (100, 41)],
)  # fmt: skip
def test_the_error_of_a_median_takes_the_nearest_order_statistic(n: int, rank: int) -> None:
    values = [float(place) for place in range(1, n + 1)]
    z = stats.norm.isf(stats.binom.cdf(rank - 1, n, 0.5))
    assert median_error(values) == pytest.approx((n + 1 - 2 * rank) / (2 * z))


@pytest.mark.parametrize("n", [9, 10, 500, 501])
def test_the_bootstrap_is_of_10_to_500_values(n: int) -> None:
    method = "studentised" if 10 <= n <= 500 else "t"
    values = [float(place) for place in range(n)]
    assert mean_bounds(values, seed=0).method == method
    assert ratio_bounds([(value, 1 + value % 2) for value in values], seed=0).method == method
    sides = [{str(place): value + shift for place, value in enumerate(values)} for shift in (0.0, 1.5)]
    assert (median_difference(*sides).bounds.method == "too_few") is (n < 10)
