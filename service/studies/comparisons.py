"""The comparison of two arms with their common seeds: its difference, interval, test and power."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from assay.service.contract.results import Metric
from assay.service.metrics.statistics.anytime_t import FIRST
from assay.service.studies.power import power_of
from assay.service.studies.result_wire import StudyComparison, StudyTest
from assay.service.studies.significance import (
    Components,
    Spread,
    interval,
    least,
    least_error_of_shares,
    over_examples,
    over_seeds,
    two_way,
)

LEVEL = 0.05
NOT_COMMON = "no seed has been measured in both arms on the same data"
TOO_FEW = f"an anytime-valid interval has ends from {FIRST} seeds on"
WEIGHTS_ONLY = "one seed: this compares weights, not methods"


class ArmPair(NamedTuple):
    """The differences of two arms with their common seeds, and example by example where there are such."""

    seeds: list[int]
    of_seeds: list[float]
    of_examples: list[list[float]] | None
    shares: bool


def compared_pair(
    pair: ArmPair,
    arm: str,
    baseline: str,
    metric: Metric,
    *,
    trained: bool,
    tested: bool,
    anytime: bool = False,
) -> tuple[StudyComparison, Spread | None]:
    """The comparison of an arm with the baseline, and its spread; the spread is None without a test.

    `anytime`: interval and test hold at every number of seeds at once, as of a study that is looked at.
    """
    s = len(pair.seeds)
    found = StudyComparison(
        arm=arm,
        baseline=baseline,
        compares="methods" if trained and s > 1 else "weights",
        difference=math.fsum(pair.of_seeds) / s if s else None,
        seeds=pair.seeds,
        note={0: NOT_COMMON, 1: WEIGHTS_ONLY}.get(s),
    )
    if not s:
        return found, None
    if pair.of_examples is None:
        return _over_seeds(found, pair, metric, tested=tested, anytime=anytime)
    n = len(pair.of_examples[0])
    found = found.model_copy(update={"n": n})
    if s == 1:
        mean, spread = over_examples(pair.of_examples[0])
        components = Components(mean, spread.of_examples, spread.of_examples * n, 0.0)
    else:
        components, spread = two_way(pair.of_examples)
        spread = spread._replace(anytime=anytime)
    floored = pair.shares and metric.unit == "proportion"
    spread = least(spread, n) if floored else spread
    if spread.error == 0:
        return _without_spread(found, components.mean), None
    update: dict[str, Any] = {"difference": components.mean}
    if spread.anytime:
        update |= _t_interval(components.mean, spread, metric, "anytime_t")
    else:
        low, high = _possible(*interval(pair.of_examples, components.mean, spread), metric)
        method = "bootstrap_over_examples" if s == 1 else "hierarchical_bootstrap"
        update |= {"ci_low": low, "ci_high": high, "ci_method": method}
    if tested and s > 1:
        update["test"] = _test("anytime_t" if spread.anytime else "two_way_t", components.mean, spread, s)
    if tested:
        error = least_error_of_shares(n) if floored else None
        update["power"] = power_of(components, s, n, least_error=error)
    return found.model_copy(update=update), spread


def _over_seeds(
    found: StudyComparison, pair: ArmPair, metric: Metric, *, tested: bool, anytime: bool
) -> tuple[StudyComparison, Spread | None]:
    """A comparison of a metric without values of examples: it holds for these examples."""
    if len(pair.seeds) < 2:
        return found, None
    mean, spread = over_seeds(pair.of_seeds)
    if spread.error == 0:
        return _without_spread(found, mean), None
    spread = spread._replace(anytime=anytime)
    update = _t_interval(mean, spread, metric, "anytime_t" if anytime else "t_over_seeds")
    if tested:
        update["test"] = _test("anytime_t" if anytime else "paired_t", mean, spread, len(pair.seeds))
        components = Components(mean, spread.of_seeds * len(pair.seeds), 0.0, 0.0)
        update["power"] = power_of(components, len(pair.seeds), None)
    return found.model_copy(update=update), spread


def _t_interval(mean: float, spread: Spread, metric: Metric, method: str) -> dict[str, Any]:
    """The 95 % interval around the mean; without ends where an anytime spread has too few seeds."""
    half = spread.critical(LEVEL) * spread.error
    if math.isinf(half):
        return {"note": TOO_FEW}
    low, high = _possible(mean - half, mean + half, metric)
    return {"ci_low": low, "ci_high": high, "ci_method": method}


def _possible(low: float, high: float, metric: Metric) -> tuple[float, float]:
    return (max(-1.0, low), min(1.0, high)) if metric.unit == "proportion" else (low, high)


def _without_spread(found: StudyComparison, mean: float) -> StudyComparison:
    note = "the difference is the same with every seed and in every example: no interval, no test"
    return found.model_copy(update={"difference": mean, "note": found.note or note})


def _test(
    name: Literal["two_way_t", "paired_t", "anytime_t"], mean: float, spread: Spread, seeds: int
) -> StudyTest:
    statistic = abs(mean) / spread.error
    p_value = spread.p_value(statistic)
    return StudyTest(name=name, p_value=p_value, adjusted_p_value=p_value, statistic=statistic, seeds=seeds)
