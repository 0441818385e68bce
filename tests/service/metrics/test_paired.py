"""Laws of paired differences where few examples differ: no false certainty, no ends that cannot be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from assay.service.metrics.paired import Difference, LinearisedTest, Pair
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics.paired_tests import mcnemar

N = 355
Rows = dict[str, list[Any]]


def difference(table: str, metric: str, sides: Sequence[tuple[Rows, float]]) -> Difference:
    ids = [f"{place:04d}" for place in range(len(next(iter(sides[0][0].values()))))]
    paired = TABLES[table].paired(Pair("rare", *({"id": ids, **rows} for rows, _ in sides)))
    assert paired is not None
    found = paired.difference(metric, (sides[0][1], sides[1][1]))
    assert found is not None
    return found


def attacked(n: int, right: int, broken: range) -> tuple[Rows, float]:
    """An attack on a model that is right on the first examples, of which it breaks some."""
    before = [place < right for place in range(n)]
    after = [was and place not in broken for place, was in enumerate(before)]
    return {"clean_correct": before, "correct": after}, len(broken) / right


# n, right and broken examples of both models: none of them is broken in both.
CASES = [
    (355, 353, 0, 352, 1),
    (355, 353, 0, 352, 2),
    (355, 353, 1, 352, 2),
    (100, 98, 0, 97, 3),
    (355, 353, 0, 353, 0),
    (1000, 900, 0, 600, 3),
]


@pytest.mark.parametrize("case", CASES)
def test_a_few_broken_examples_are_no_evidence(case: tuple[int, int, int, int, int]) -> None:
    n, right, broken, other, more = case
    sides = [attacked(n, right, range(50, 50 + broken)), attacked(n, other, range(more))]
    found = difference("attack", "attack_success_rate", sides)
    assert found.low is not None
    assert found.high is not None
    assert -12 / other < found.low < 0 < found.high < 12 / other
    assert isinstance(found.test, LinearisedTest)
    assert found.test.p_value == pytest.approx(mcnemar(broken, more), abs=0.03)
    assert found.test.p_value > 0.05
    # Of the outcomes, not of influences on a ratio: of these every example has its own.
    assert found.test.moved == broken + more + right - other
    back = difference("attack", "attack_success_rate", sides[::-1])
    assert (back.low, back.high) == (pytest.approx(-found.high), pytest.approx(-found.low))
    assert back.test is not None
    assert back.test.p_value == pytest.approx(found.test.p_value)


def test_of_examples_that_all_count_the_interval_and_the_test_are_those_of_proportions() -> None:
    sides = [attacked(60, 60, range(40, 44)), attacked(60, 60, range(15))]
    found = difference("attack", "attack_success_rate", sides)
    shares = difference("attack", "top1", [(rows, 1 - value) for rows, value in sides])
    assert found.value == pytest.approx(-shares.value)
    assert (found.low, found.high) == (pytest.approx(-shares.high), pytest.approx(-shares.low))  # type: ignore[operator]
    both = [attacked(60, 60, range(3, 6)), attacked(60, 60, range(10))]
    assert difference("attack", "attack_success_rate", both).test.p_value == pytest.approx(mcnemar(0, 7))  # type: ignore[union-attr]


def test_another_number_of_right_examples_alone_is_no_difference_of_attacks() -> None:
    """One example is broken in both; one of 900 is 0.004 points less than one of 870."""
    found = difference(
        "attack", "attack_success_rate", [attacked(1000, 900, range(1)), attacked(1000, 870, range(1))]
    )
    assert found.test is not None
    assert found.test.p_value > 0.4
    assert found.low is not None
    assert found.high is not None
    assert -0.005 < found.low < 0 < found.high < 0.005


def test_attacks_that_seldom_succeed_alike_are_seldom_told_apart() -> None:
    rng, wide, apart, alarms = random.Random(0), 0, 0, 0
    for _ in range(60):
        sides = []
        for _ in "ab":
            before = [rng.random() < 0.98 for _ in range(N)]
            after = [was and rng.random() >= 0.003 for was in before]
            broken = sum(before) - sum(after)
            sides.append(({"clean_correct": before, "correct": after}, broken / sum(before)))
        found = difference("attack", "attack_success_rate", sides)
        assert found.low is not None
        assert found.high is not None
        assert found.test is not None
        wide += found.high - found.low > 0.06
        apart += not found.low <= 0 <= found.high
        alarms += found.test.p_value <= 0.05
    assert (wide, alarms) == (0, 0)
    assert apart <= 3


@pytest.mark.parametrize("n", [1, 2, 3, 9, 12, 40])
def test_a_difference_of_proportions_is_between_minus_1_and_1(n: int) -> None:
    rng = random.Random(n)
    for _ in range(40):
        share, hits = (rng.choice([0.1, 0.5, 1.0]) for _ in "ab")
        sides: dict[tuple[str, str], list[tuple[Rows, float]]] = {}
        for _ in "ab":
            before = [True, *(rng.random() < share for _ in range(n - 1))]
            broken = [was and rng.random() < hits for was in before]
            rows: Rows = {"clean_correct": before, "hit": broken}
            rows["correct"] = [was and not now for was, now in zip(before, broken, strict=True)]
            rate = sum(broken) / sum(before)
            sides.setdefault(("attack", "attack_success_rate"), []).append((rows, rate))
            sides.setdefault(("attack", "target_hit_rate"), []).append((rows, rate))
            changed = [rng.randrange(11) for _ in before]
            texts: Rows = {"words": [10] * n, "changed": changed}
            texts["status"] = ["succeeded" if was else "skipped" for was in before]
            found = math.fsum(c / 10 for c, was in zip(changed, before, strict=True) if was) / sum(before)
            sides.setdefault(("text_attack", "words_changed"), []).append((texts, found))
            tokens = [rng.randrange(1, 50) for _ in before]
            unknown = [count * now for count, now in zip(tokens, broken, strict=True)]
            swapped: Rows = {"tokens": tokens, "unknown": unknown}
            sides.setdefault(("word_swap", "unknown_words"), []).append((swapped, sum(unknown) / sum(tokens)))
            smoothed: Rows = {"prediction": [[-now] for now in broken]}
            sides.setdefault(("smoothed", "smoothed_abstained"), []).append((smoothed, sum(broken) / n))
        for (table, metric), both in sides.items():
            one = difference(table, metric, both)
            assert one.test is not None
            assert 0 <= one.test.p_value <= 1
            if one.low is None or one.high is None:
                assert metric == "unknown_words"  # documents are no units with known limits
                continue
            assert -1 <= one.low < one.high <= 1, (metric, both)
            assert one.low <= one.value + 1e-12, (metric, both)
            assert one.value - 1e-12 <= one.high, (metric, both)


def root(squares: list[float]) -> float:
    return math.sqrt(math.fsum(squares) / len(squares))


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def spread(away: list[float]) -> tuple[Rows, float]:
    squares = [one**2 + 0.01 for one in away]
    rows: Rows = {"distance": [[one] for one in away], "squared_distance": [[one] for one in squares]}
    return rows, math.sqrt(mean(squares) - mean(away) ** 2)


def logs(values: list[float]) -> tuple[Rows, float]:
    rows: Rows = {"log_phi": [[one] for one in values], "output": [[0.0]] * N}
    rows |= {"negative": [[1]] * N, "terms": [[10]] * N}
    return rows, math.log(mean([math.exp(one) for one in values]))


def losses(values: list[float]) -> tuple[Rows, float]:
    return {"nll": values, "tokens": [1] * N}, math.exp(mean(values))


BASE = [1 + place * 7919 % 101 / 1000 for place in range(N)]
# Metric to its table, and its rows and value from a number of each example.
UNBOUNDED: dict[str, tuple[str, Callable[[list[float]], tuple[Rows, float]]]] = {
    "queries": (
        "attack",
        lambda x: ({"clean_correct": [True] * N, "queries": x, "backward": [0] * N}, mean(x)),
    ),
    "rmse": ("regression", lambda x: ({"squared_error": x}, root(x))),
    "mae": ("regression", lambda x: ({"squared_error": [one**2 for one in x]}, mean(x))),
    "perplexity": ("perplexity", losses),
    "normalized_return": ("returns", lambda x: ({"normalized": x}, mean(x))),
    "lower_margin": ("verified", lambda x: ({"lower_margin": x}, mean(x))),
    "smoothed_mean_radius": (
        "smoothed",
        lambda x: ({"label": [0] * N, "prediction": [[0]] * N, "radius": [[one] for one in x]}, mean(x)),
    ),
    "head_distance_std": ("head_distance", spread),
    "log_projection_loss": ("projection_loss", logs),
}


@pytest.mark.parametrize("metric", UNBOUNDED)
@pytest.mark.parametrize("rare", [1, 2, 3])
def test_a_few_examples_that_differ_are_no_evidence_without_limits_either(metric: str, rare: int) -> None:
    table, make = UNBOUNDED[metric]
    higher = [one + 1 if place < rare else one for place, one in enumerate(BASE)]
    found = difference(table, metric, [make(BASE), make(higher)])
    assert found.method == "tango_effective"
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.value < found.high
    assert found.high - found.low < 12 * found.value
    assert found.test is not None
    assert found.test.p_value == pytest.approx(mcnemar(0, rare))
    assert found.test.moved == rare  # type: ignore[union-attr]
