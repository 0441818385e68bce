"""Comparisons of a study that is looked at after every seed."""

from __future__ import annotations

import math
import random

import pytest

from assay.service.contract.results import Metric
from assay.service.metrics.statistics import anytime_t
from assay.service.metrics.statistics.student_t import quantile
from assay.service.studies.comparisons import TOO_FEW, ArmPair, compared_pair
from assay.service.studies.result_wire import StudyComparison
from assay.service.studies.significance import OF_EXAMPLES, Spread, two_way

METRIC = Metric(
    value=0.5, n=50, ci_low=0.4, ci_high=0.6, ci_method="wilson", higher_is_better=True, unit="proportion"
)


def pair(seeds: int, *, examples: bool = True) -> ArmPair:
    rng = random.Random(seeds)
    rows = [[0.3 + rng.gauss(0, 0.1) for _ in range(50)] for _ in range(seeds)]
    means = [math.fsum(row) / 50 for row in rows]
    return ArmPair([*range(seeds)], means, rows if examples else None, shares=False)


def compared(given: ArmPair, *, anytime: bool = True) -> tuple[StudyComparison, Spread | None]:
    return compared_pair(given, "other", "one", METRIC, trained=True, tested=True, anytime=anytime)


def test_an_anytime_interval_is_around_the_difference_and_holds_its_test() -> None:
    given = pair(6)
    found, spread = compared(given)
    fixed, _ = compared(given, anytime=False)
    assert spread is not None
    assert found.test is not None
    assert (found.ci_method, found.test.name) == ("anytime_t", "anytime_t")
    assert (fixed.ci_method, fixed.test and fixed.test.name) == ("hierarchical_bootstrap", "two_way_t")
    components, plain = two_way(given.of_examples or [])
    share = plain.of_seeds / plain.error**2
    critical = share * anytime_t.critical(0.05, 6) + (1 - share) * quantile(OF_EXAMPLES * 0.05, 49)
    assert found.ci_low == pytest.approx(components.mean - critical * plain.error)
    assert found.ci_high == pytest.approx(components.mean + critical * plain.error)
    assert found.test.p_value == pytest.approx(spread.p_value(components.mean / plain.error))


@pytest.mark.parametrize("examples", [True, False])
def test_few_seeds_have_no_anytime_interval(examples: bool) -> None:
    few, _ = compared(pair(3, examples=examples))
    assert (few.ci_low, few.ci_high, few.ci_method, few.note) == (None, None, None, TOO_FEW)
    assert few.test is not None
    assert few.test.p_value >= 1 / 16
    enough, _ = compared(pair(4, examples=examples))
    assert (enough.ci_method, enough.note) == ("anytime_t", None)


def test_metrics_without_values_of_examples_have_it_over_seeds() -> None:
    found, spread = compared(pair(8, examples=False))
    assert spread is not None
    assert spread.critical(0.05) == anytime_t.critical(0.05, 8)
    assert found.test is not None
    assert found.test.p_value == pytest.approx(max(1e-12, anytime_t.p_value(found.test.statistic, 8)))


def test_one_seed_is_an_interval_over_examples() -> None:
    found, _ = compared(pair(1))
    assert (found.ci_method, found.test) == ("bootstrap_over_examples", None)
