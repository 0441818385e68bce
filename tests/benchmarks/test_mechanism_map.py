"""Groups of the studentised range: the textbook's quantile, its level, and letters of overlapping groups."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.service.studies.result_wire import ArmValue, SeedValue
from benchmarks.evidence.archive import FOLDER, load
from benchmarks.evidence.mechanism_map import (
    COST,
    NUMBER,
    SIDES,
    honest_difference,
    is_map,
    letters,
    map_table,
    mapped,
    numbers_apart,
)
from benchmarks.evidence.pages import drawn


def test_the_difference_is_of_the_textbook() -> None:
    # Residuals are -1, 0, 1 and 1, 0, -1: s2 = 4 / 2; q(0.95; 2, 2) is 6.08 in tables.
    values = [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]
    assert honest_difference(values) == pytest.approx(6.08 * math.sqrt(4 / 2 / 3), rel=1e-2)
    for wrong in ([], [[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 2.0], [1.0]]):
        with pytest.raises(ValueError, match="two arms"):
            honest_difference(wrong)


def test_equal_arms_are_told_apart_in_a_twentieth_of_the_studies() -> None:
    draws = np.random.default_rng(41).normal(size=(1000, 6, 3)) + np.arange(3)
    wrong = sum(np.ptp(one.mean(1)) >= honest_difference(one.tolist()) for one in draws)
    assert 30 <= wrong <= 72


def test_letters_are_of_the_largest_groups() -> None:
    means = {"low": 0.1, "high": 0.9, "middle": 0.5, "near high": 0.8, "near middle": 0.55}
    assert letters(means, 0.3) == {
        "high": "a",
        "near high": "ab",
        "near middle": "bc",
        "middle": "c",
        "low": "d",
    }
    assert letters(means, 1.0) == dict.fromkeys(means, "a")
    assert letters(means, 0.0) == dict(zip(sorted(means, key=lambda arm: -means[arm]), "abcde", strict=True))


def test_a_study_becomes_a_map() -> None:
    results = load(FOLDER / "primal_basic_motions.json.gz")[0].results()
    costs = {"softmax": 100.0, "Primal.": 80.0, "Primal.+": 90.0, "Primal. without r": 75.0}
    arms = [
        ArmValue(arm=arm, mean=cost, sd=0.0, n=None, seeds=[SeedValue(seed=0, value=cost)])
        for arm, cost in costs.items()
    ]
    cost = results.cells[0].model_copy(update={"evaluation": "efficiency", "metric": COST, "arms": arms})
    results = results.model_copy(update={"cells": [*results.cells, cost]})
    assert is_map(results)
    rows = mapped(results)
    assert [row["arm"] for row in rows] == ["Primal.+", "softmax", "Primal. without r", "Primal."]
    assert [row["cost"] for row in rows] == [0.9, 1.0, 0.75, 0.8]
    assert [f"{100 * row['attacked']:.1f}" for row in rows] == ["46.7", "35.8", "31.2", "28.8"]
    assert {row["arm"]: row["clean group"] for row in rows} == {
        "softmax": "a",
        "Primal.+": "a",
        "Primal. without r": "b",
        "Primal.": "b",
    }
    assert map_table(results, "PGD")[2] == "| Primal.+ | 98.8 % | a | 46.7 % | a | 0.90 |"
    assert ">1 Primal.+</text>" in drawn(results)


def test_numbers_of_near_points_stand_apart() -> None:
    points = [(0.0, 0.0), (1.0, 1.0), (0.5, 0.5), (0.501, 0.501), (0.5, 0.5), (0.52, 0.5)]
    found = numbers_apart(points)
    assert found[:3] == points[:3]
    for at, (x, y) in enumerate(found):
        for a, b in found[:at]:
            assert abs(x - a) * SIDES[0] >= 0.98 * NUMBER[0] or abs(y - b) * SIDES[1] >= 0.98 * NUMBER[1]
        assert abs(x - points[at][0]) * SIDES[0] <= 1.01 * NUMBER[0]
