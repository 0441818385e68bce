"""The statistics against published values, closed forms and exhaustive enumeration."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from assay.service.metrics import intervals
from assay.service.metrics.intervals import (
    bootstrap_mean,
    bootstrap_median,
    mcnemar,
    paired_bootstrap,
    wilson,
)


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


def test_bootstrap_interval_of_a_proportion_is_near_wilson() -> None:
    estimate = bootstrap_mean([1.0] * 300 + [0.0] * 700, seed=0)
    low, high = wilson(300, 1000)
    assert estimate.value == 0.3
    assert estimate.low == pytest.approx(low, abs=0.006)
    assert estimate.high == pytest.approx(high, abs=0.006)


def test_bootstrap_interval_of_many_values_is_near_the_normal_one() -> None:
    rng = random.Random(1)
    values = [rng.gauss(2.0, 1.0) for _ in range(400)]
    mean = math.fsum(values) / 400
    half = 1.96 * math.sqrt(math.fsum((v - mean) ** 2 for v in values) / 400) / 20
    estimate = bootstrap_mean(values, seed=3, resamples=1000)
    assert estimate.value == pytest.approx(mean)
    assert estimate.low == pytest.approx(mean - half, abs=half / 6)
    assert estimate.high == pytest.approx(mean + half, abs=half / 6)


def test_counting_path_and_direct_path_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [-1.0] * 30 + [0.0] * 140 + [1.0] * 50
    counted = bootstrap_mean(values, seed=5, resamples=4000)
    monkeypatch.setattr(intervals, "MULTINOMIAL_VALUES", 0)
    direct = bootstrap_mean(values, seed=5, resamples=4000)
    assert counted.value == direct.value
    assert counted.low == pytest.approx(direct.low, abs=0.01)
    assert counted.high == pytest.approx(direct.high, abs=0.01)


@pytest.mark.parametrize(("n", "p"), [(5, 0.3), (12, 0.9), (3, 0.5), (1, 0.01)])
def test_binomial_draws_follow_their_law(n: int, p: float) -> None:
    rng = random.Random(7)
    draws = 20_000
    seen = Counter(intervals._binomial(rng, n, p) for _ in range(draws))
    for k in range(n + 1):
        expected = math.comb(n, k) * p**k * (1 - p) ** (n - k)
        deviation = math.sqrt(expected * (1 - expected) / draws)
        assert abs(seen[k] / draws - expected) < 4.5 * deviation + 1e-4


def test_binomial_draws_of_large_n_stay_in_range() -> None:
    rng = random.Random(7)
    draws = [intervals._binomial(rng, 50_000, 0.001) for _ in range(500)]
    assert min(draws) >= 0
    assert max(draws) <= 50_000
    assert sum(draws) / 500 == pytest.approx(50, abs=1.6)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 101])
def test_resampled_medians_follow_the_law_of_resampling(n: int) -> None:
    rng = random.Random(11)
    values = sorted(rng.expovariate(1.0) for _ in range(n))
    draws = 4000
    quick = sorted(intervals._resampled_median(values, rng) for _ in range(draws))
    plain = sorted(median(rng.choices(values, k=n)) for _ in range(draws))
    # The two-sample Kolmogorov-Smirnov distance exceeds this once in a hundred thousand.
    limit = 2.47 * math.sqrt(2 / draws)
    for value in quick:
        distance = abs(bisect_right(quick, value + 1e-12) - bisect_right(plain, value + 1e-12)) / draws
        assert distance < limit


def test_bootstrap_interval_of_a_median() -> None:
    values = list(range(1, 102))
    estimate = bootstrap_median(values, seed=0)
    assert estimate.value == 51
    # The binomial interval of a median: ranks 51 -+ 1.96 sqrt(n) / 2.
    assert estimate.low == pytest.approx(41, abs=2)
    assert estimate.high == pytest.approx(61, abs=2)
    assert bootstrap_median(values[::-1], seed=0) == estimate
    assert bootstrap_median(values, seed=1) != estimate
    assert bootstrap_median([2.5], seed=0) == (2.5, 2.5, 2.5)
    with pytest.raises(ValueError, match="finite"):
        bootstrap_median([1.0, math.nan], seed=0)
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_median([], seed=0)


def test_paired_bootstrap_sees_a_difference_and_none() -> None:
    better = [1.0] * 60 + [0.0] * 40
    worse = [1.0] * 40 + [0.0] * 60
    found = paired_bootstrap(better, worse, seed=0)
    assert found.difference == pytest.approx(0.2)
    assert 0 < found.low < 0.2 < found.high
    assert found.p_value < 0.01
    back = paired_bootstrap(worse, better, seed=0)
    assert back.difference == pytest.approx(-0.2)
    assert back.high < 0
    same = paired_bootstrap(better, better, seed=0)
    assert same == (0.0, 0.0, 0.0, 1.0)


def test_pairing_matters() -> None:
    rng = random.Random(2)
    hard = [rng.gauss(0, 10) for _ in range(50)]
    shifted = [v + 0.5 + rng.gauss(0, 0.1) for v in hard]
    assert paired_bootstrap(shifted, hard, seed=0, resamples=500).low > 0.4
    assert paired_bootstrap(sorted(shifted), hard, seed=0, resamples=500).low < 0.1


def test_same_seed_same_bits_in_any_order_and_process() -> None:
    values = [math.sin(i) for i in range(100)]
    first = bootstrap_mean(values, seed="job/0", resamples=200)
    assert bootstrap_mean(values[::-1], seed="job/0", resamples=200) == first
    assert bootstrap_mean(values, seed="job/1", resamples=200) != first
    script = (
        "import math; from assay.service.metrics.intervals import bootstrap_mean as b;"
        "print(repr(tuple(b([math.sin(i) for i in range(100)], seed='job/0', resamples=200))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": "4"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == repr(tuple(first))


@pytest.mark.parametrize(
    ("values", "options"),
    [([], {}), ([math.nan], {}), ([math.inf], {}), ([1.0], {"resamples": 0}), ([1.0], {"confidence": 1.0})],
)
def test_bootstrap_refuses_impossible_input(values: list[float], options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"bootstrap|resamples|confidence"):
        bootstrap_mean(values, seed=0, **options)  # type: ignore[arg-type]


def test_paired_bootstrap_refuses_unpaired_values() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        paired_bootstrap([1.0, 2.0], [1.0], seed=0)
