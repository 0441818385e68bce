"""The two-way analysis of differences: against sums written out, and by simulation."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from assay.service.metrics.statistics.tango import tango
from assay.service.studies.significance import (
    Components,
    Spread,
    interval,
    least,
    least_error_of_shares,
    over_examples,
    over_seeds,
    resolved,
    two_way,
)


def table(
    s: int, n: int, key: int, *, seeds: float = 0.3, examples: float = 0.4, mean: float = 0.0
) -> list[list[float]]:
    rng = random.Random(key)
    columns = [rng.gauss(0, examples) for _ in range(n)]
    rows = [rng.gauss(0, seeds) for _ in range(s)]
    return [[mean + row + column + rng.gauss(0, 1) for column in columns] for row in rows]


def test_mean_squares_are_those_of_a_two_way_layout() -> None:
    found = table(4, 30, 1)
    d = np.array(found)
    rows, columns = d.mean(1, keepdims=True), d.mean(0, keepdims=True)
    ms_rest = ((d - rows - columns + d.mean()) ** 2).sum() / (3 * 29)
    ms_seeds, ms_examples = 30 * rows.var(ddof=1), 4 * columns.var(ddof=1)
    components, spread = two_way(found)
    assert components.mean == pytest.approx(d.mean())
    assert components.rest == pytest.approx(ms_rest)
    assert components.seeds == pytest.approx(max(0, ms_seeds - ms_rest) / 30)
    assert components.examples == pytest.approx(max(0, ms_examples - ms_rest) / 4)
    assert spread.of_seeds == pytest.approx(max(ms_seeds, ms_rest) / 120)
    assert spread.of_examples == pytest.approx(max(0, ms_examples - ms_rest) / 120)


def test_without_a_spread_of_examples_it_is_the_paired_t_test_over_seeds() -> None:
    d = [[seed + 0.0] * 50 for seed in (0.1, 0.3, 0.2, 0.5)]
    components, spread = two_way(d)
    means = [row[0] for row in d]
    expected = stats.ttest_1samp(means, 0)
    assert spread.p_value(components.mean / spread.error) == pytest.approx(expected.pvalue)
    mean, alone = over_seeds(means)
    assert alone.p_value(mean / alone.error) == pytest.approx(expected.pvalue)


def test_the_critical_value_is_between_those_of_seeds_and_examples() -> None:
    spread = Spread(1.0, 3.0, 2.0, 99.0)
    expected = (stats.t.isf(0.025, 2) + 3 * stats.t.isf(0.025, 99)) / 4
    assert spread.critical(0.05) == pytest.approx(expected)
    assert spread.p_value(expected) == pytest.approx(0.05)
    assert spread.p_value(1e9) <= 2e-12


def test_the_interval_has_the_width_of_the_t_interval_and_the_same_bits_again() -> None:
    found = table(3, 200, 7, mean=0.5)
    components, spread = two_way(found)
    low, high = interval(found, components.mean, spread)
    assert low < components.mean < high
    assert high - low == pytest.approx(2 * spread.critical(0.05) * spread.error)
    assert interval(found, components.mean, spread) == (low, high)


def test_shares_without_disagreement_keep_tangos_interval() -> None:
    _, spread = two_way([[0.0] * 60] * 3)
    assert spread.error == 0
    floor = least(spread, 60)
    assert floor.critical(0.05) * floor.error >= 1.959964**2 / (60 + 1.959964**2)
    assert least(Spread(1.0, 1.0, 2.0, 59.0), 60) == Spread(1.0, 1.0, 2.0, 59.0)


def test_more_seeds_and_examples_find_smaller_differences() -> None:
    components = Components(0.0, 0.02**2, 0.1**2, 0.4**2)
    found = [resolved(components, *size, 0.05) for size in ((2, 300), (3, 300), (6, 300), (6, 3000))]
    assert found == sorted(found, reverse=True)
    assert resolved(components, 6, 300, 0.001) > resolved(components, 6, 300, 0.05)


def test_the_resolved_difference_is_found_in_about_four_of_five() -> None:
    components = Components(0.0, 0.1**2, 0.0, 1.0)
    size = resolved(components, 6, 50, 0.05)
    hits = 0
    for key in range(200):
        measured, spread = two_way(table(6, 50, key, seeds=0.1, examples=0.0, mean=size))
        hits += abs(measured.mean) / spread.error > spread.critical(0.05)
    assert 0.7 < hits / 200 < 0.92


def test_size_under_the_null() -> None:
    rejected = 0
    for key in range(300):
        measured, spread = two_way(table(4, 30, key))
        rejected += abs(measured.mean) / spread.error > spread.critical(0.05)
    assert rejected / 300 < 0.08


def test_the_spread_of_seeds_is_at_least_the_rest() -> None:
    """Equal means of the seeds by chance do not say that other seeds would have the same."""
    rest = [[1.0, -1.0, 2.0, -2.0], [-1.0, 1.0, -2.0, 2.0], [0.0, 0.0, 0.0, 0.0]]
    d = [[value + column for value, column in zip(row, (0.1, 0.2, 0.3, 0.4), strict=True)] for row in rest]
    components, spread = two_way(d)
    ms_rest = 2 * (1 + 1 + 4 + 4) / (2 * 3)
    assert components.rest == pytest.approx(ms_rest)
    assert components.seeds == 0
    assert spread.of_seeds == pytest.approx(ms_rest / 12)
    # The means of the examples differ by less than the rest lets them.
    assert components.examples == spread.of_examples == 0


@pytest.mark.parametrize("seeds", [2, 4])
def test_size_under_the_null_without_a_spread_of_seeds(seeds: int) -> None:
    rejected = 0
    for key in range(400):
        measured, spread = two_way(table(seeds, 30, key, seeds=0.0, examples=0.0))
        rejected += abs(measured.mean) / spread.error > spread.critical(0.05)
    assert rejected / 400 < 0.05


def test_a_mean_of_seeds_or_examples_alone_has_the_unbiased_variance() -> None:
    d = [0.1, 0.4, 0.2, 0.9]
    expected = np.var(d, ddof=1) / 4
    assert over_seeds(d) == (pytest.approx(0.4), pytest.approx((expected, 0.0, 3.0, 1.0, False)))
    assert over_examples(d) == (pytest.approx(0.4), pytest.approx((0.0, expected, 1.0, 3.0, False)))


def test_the_least_error_is_that_of_tangos_interval() -> None:
    z = stats.norm.isf(0.025)
    for n in (20, 355):
        assert 2 * z * least_error_of_shares(n) == pytest.approx(tango(0, 0, n)[1] - tango(0, 0, n)[0])
        floor = least(Spread(1e-9, 2e-9, 2.0, n - 1.0), n)
        assert floor.error == pytest.approx(least_error_of_shares(n))
        assert floor.of_seeds == 1e-9


@pytest.mark.parametrize("seeds", [2, 3, 6, 25])
@pytest.mark.parametrize("level", [0.05, 0.001])
def test_over_seeds_the_power_is_of_the_noncentral_t(seeds: int, level: float) -> None:
    found = resolved(Components(0.0, 0.1**2, 0.0, 0.0), seeds, 300, level)
    shift = found / (0.1 / np.sqrt(seeds))
    power = stats.nct.sf(stats.t.isf(level / 2, seeds - 1), seeds - 1, shift)
    assert power == pytest.approx(0.8, abs=0.002)


def test_a_resolved_difference_is_found_in_four_of_five_studies() -> None:
    """With seeds and examples both random, and with a least error, by 10,000 simulated tests each."""
    rng = np.random.default_rng(0)
    for parts, seeds, n, least_error in (
        (Components(0.0, 0.02**2, 0.3**2, 0.3**2), 3, 100, 0.0),
        (Components(0.0, 0.01**2, 0.1**2, 0.1**2), 4, 400, 0.02),
    ):
        true = Spread(
            parts.seeds / seeds + parts.rest / (seeds * n), parts.examples / n, seeds - 1.0, n - 1.0
        )
        found = resolved(parts, seeds, n, 0.05, least_error=least_error)
        seen = true.of_seeds * rng.chisquare(seeds - 1, 10_000) / (seeds - 1)
        differences = rng.normal(found, max(true.error, least_error), 10_000)
        hits = 0
        for of_seeds, difference in zip(seen, differences, strict=True):
            missing = max(0.0, least_error**2 - of_seeds - true.of_examples)
            spread = true._replace(of_seeds=of_seeds, of_examples=true.of_examples + missing)
            hits += abs(difference) > spread.critical(0.05) * spread.error
        assert hits / 10_000 == pytest.approx(0.8, abs=0.015)


def test_an_anytime_spread_has_the_p_of_its_critical_value() -> None:
    for spread in (Spread(1.0, 3.0, 7.0, 99.0, True), Spread(1.0, 0.0, 7.0, 99.0, True)):
        for p in (0.5, 0.05, 1e-3):
            assert spread.p_value(spread.critical(p)) == pytest.approx(p)
        assert spread.critical(0.05) > spread._replace(anytime=False).critical(0.05)
        assert spread.p_value(0.0) == 1.0
    few = Spread(1.0, 1.0, 2.0, 99.0, True)  # 3 seeds: the least p is 1 / 16
    assert few.critical(0.05) == np.inf
    assert few.p_value(few.critical(0.07)) == pytest.approx(0.07)
    assert few.p_value(1e9) == pytest.approx(1 / 16, rel=1e-4)
    assert Spread(0.0, 1.0, 2.0, 99.0, True).p_value(1e9) <= 2e-12
    assert resolved(Components(0.0, 1.0, 0.0, 0.0), 3, 300, 0.05, anytime=True) == np.inf


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0, 4.0, 1e6])
def test_looking_after_every_seed_keeps_the_level_for_seeds_and_examples_together(ratio: float) -> None:
    """Many examples, so that their variance is known: `benchmarks/sequential.py` has few examples too."""
    rng, draws, looks = np.random.default_rng(41), 4000, 30
    counts = np.arange(1, looks + 1)
    values = np.sqrt(ratio) * rng.standard_normal((draws, looks))
    means = values.cumsum(1) / counts
    squares = (values**2).cumsum(1) - counts * means**2
    error = np.abs(means + rng.standard_normal((draws, 1)))
    outside = np.zeros(draws, bool)
    for place in range(1, looks):
        of_seeds = squares[:, place] / (counts[place] * place)
        at_seeds = Spread(1.0, 0.0, float(place), 1e6, True).critical(0.05)
        at_examples = Spread(0.0, 1.0, float(place), 1e6, True).critical(0.05)
        with np.errstate(invalid="ignore"):
            part = np.where(of_seeds > 0, of_seeds * at_seeds, 0.0)
        outside |= error[:, place] > (part + at_examples) / np.sqrt(of_seeds + 1)
    assert outside.mean() < 0.05
