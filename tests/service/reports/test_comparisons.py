"""Bold numbers: better than all others beyond chance, in the direction of their metric."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from assay.service.metrics.compare.comparison import ComparedValue, Comparison, ComparisonRow
from assay.service.metrics.paired import SignFlipTest
from assay.service.reports.comparisons import comparison_lines, comparison_summary, significantly_best
from assay.service.reports.tidy import comparison_key

KEY = comparison_key("pgd", {}, {"name": "digits", "params": {}}, "pixel", "m")
DIRECTIONS = pytest.mark.parametrize("higher_is_better", [True, False], ids=["score", "error"])


def pair(first: str, second: str, difference: float | None, **changes: Any) -> ComparisonRow:
    """A comparison of two jobs; the difference is the second value less the first."""
    p_value = changes.pop("p_value", 1e-6)
    test = None if p_value is None else SignFlipTest(p_value=p_value, n=60, moved=30)
    values = [ComparedValue(job=job, value=0.5, ci_low=None, ci_high=None, n=60) for job in (first, second)]
    return ComparisonRow(
        evaluation="pgd",
        params={},
        data={"name": "digits", "params": {}},
        protocol="pixel",
        metric="m",
        values=values,
        difference=difference,
        test=test,
        **{"higher_is_better": True, **changes},
    )


def bold(values: dict[str, float], *, higher_is_better: bool, chance: tuple[str, ...] = ()) -> set[str]:
    """The bold jobs of these values: all pairs differ significantly, except those of `chance`."""
    pairs = [
        pair(
            first,
            second,
            values[second] - values[first],
            higher_is_better=higher_is_better,
            p_value=0.5 if {first, second} == set(chance) else 1e-6,
        )
        for first, second in combinations(values, 2)
    ]
    best = significantly_best(pairs, list(values), "holm")
    assert {key for _, key in best} <= {f" {KEY}"}
    return {job for job, _ in best}


@DIRECTIONS
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_of_two_the_better_one_is_bold(order: tuple[str, str], higher_is_better: bool) -> None:
    values = {"a": 0.9, "b": 0.2}
    winner = "a" if higher_is_better else "b"
    assert bold({job: values[job] for job in order}, higher_is_better=higher_is_better) == {winner}


@DIRECTIONS
@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_of_three_one_alone_is_bold(order: str, higher_is_better: bool) -> None:
    """The second beats the third, and is not bold."""
    values = {"a": 0.9, "b": 0.5, "c": 0.2}
    winner = "a" if higher_is_better else "c"
    assert bold({job: values[job] for job in order}, higher_is_better=higher_is_better) == {winner}


@DIRECTIONS
def test_two_equal_ones_above_a_third_are_not_bold(higher_is_better: bool) -> None:
    values = {"a": 0.9, "b": 0.9, "c": 0.2} if higher_is_better else {"a": 0.2, "b": 0.2, "c": 0.9}
    assert bold(values, higher_is_better=higher_is_better) == set()
    values = values | {"a": values["a"] + (0.01 if higher_is_better else -0.01)}
    assert bold(values, higher_is_better=higher_is_better, chance=("a", "b")) == set()
    assert bold(values, higher_is_better=higher_is_better) == {"a"}


def test_without_a_test_or_a_value_nothing_is_bold() -> None:
    for lacking in ({"p_value": None}, {"p_value": 0.06}):
        assert significantly_best([pair("a", "b", 0.4, **lacking)], ["a", "b"], "holm") == set()
    assert significantly_best([pair("a", "b", None)], ["a", "b"], "holm") == set()
    # A job that lacks the number: the others are not better than it.
    assert significantly_best([pair("a", "b", 0.4)], ["a", "b", "c"], "holm") == set()


def test_p_values_are_adjusted_over_all_pairs() -> None:
    def winners(p_value: float) -> set[tuple[str, str]]:
        pairs = [pair(*jobs, 0.1, p_value=p_value) for jobs in (("c", "b"), ("c", "a"), ("b", "a"))]
        return significantly_best(pairs, ["a", "b", "c"], "holm")

    assert winners(0.05) == set(), "three times 0.05"
    assert {job for job, _ in winners(0.016)} == {"a"}


@pytest.mark.parametrize(
    ("common", "told"), [(50, " over 50 common examples"), (1, " over 1 common example"), (None, "")]
)
def test_a_difference_over_fewer_examples_than_its_values_says_so(common: int | None, told: str) -> None:
    compared = Comparison(jobs=["a", "b"], rows=[pair("a", "b", 0.0, common=common)], warnings=[])
    found = compared.model_dump(mode="json")
    assert f"B - A +0{told} " in comparison_summary(found)[0]
    assert comparison_lines(found)[2][0][5] == f"+0{told}"
