"""The checks fit into their time, and each has a function."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.acceptance.checks import BUDGET_SECONDS, CHECKS, chosen, planned
from tests.benchmarks.acceptance.planted import check


def test_all_checks_take_at_most_45_minutes() -> None:
    assert planned(CHECKS) <= BUDGET_SECONDS == 45 * 60


def test_more_than_that_is_refused() -> None:
    assert planned([check("passes", 1200), check("fails", 1500)]) == 2700
    with pytest.raises(ValueError, match="2701 s together; at most 2700 s"):
        planned([check("passes", 1200), check("fails", 1501)])


def test_each_has_a_worth_of_its_own_and_what_measures_runs_alone() -> None:
    assert sorted(one.worth for one in CHECKS) == list(range(1, len(CHECKS) + 1))
    alone = {one.name for one in CHECKS if one.alone}
    assert alone == {one.name for one in CHECKS if one.name.startswith(("speed-", "memory-"))}
    assert min(one.worth for one in CHECKS if one.area == "Speed") >= len(CHECKS) - 5


def test_names_are_unique_and_areas_together() -> None:
    assert len({one.name for one in CHECKS}) == len(CHECKS)
    areas = [one.area for one in CHECKS]
    assert areas == sorted(areas, key=areas.index)


@pytest.mark.parametrize("one", CHECKS, ids=lambda one: one.name)
def test_its_function_is_there(one: object) -> None:
    target = one.target  # type: ignore[attr-defined]
    module, _, name = target.partition(":")
    assert getattr(importlib.import_module(module), name).__doc__


def test_checks_are_chosen_by_name() -> None:
    assert chosen(CHECKS, []) == list(CHECKS)
    assert [one.name for one in chosen(CHECKS, ["waits", "doctor"])] == ["doctor", "waits"]
    with pytest.raises(ValueError, match="no check is named 'wait'; there are doctor, precision"):
        chosen(CHECKS, ["wait"])
