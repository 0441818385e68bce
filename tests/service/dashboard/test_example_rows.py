"""Outcomes as rows of a page: sorted, filtered, and their columns."""

from __future__ import annotations

from typing import Any

from assay.service.contract.results import EvaluationResult
from assay.service.dashboard.example_rows import (
    MAX_COLUMNS,
    ExampleChoice,
    chosen_rows,
    folded_columns,
    joined_columns,
    outcome_of,
    shown_columns,
    smallest_epsilons,
)
from assay.service.dashboard.examples import MAX_KEPT
from assay.service.lru_cache import table_weight
from tests.support.result_rows import row

METRIC = {
    "value": 0.5,
    "n": 1,
    "ci_low": None,
    "ci_high": None,
    "ci_method": "none",
    "higher_is_better": True,
}

COLUMNS: dict[str, list[Any]] = {
    "id": ["a", "b", "c", "d"],
    "label": [1, 2, 1, 2],
    "clean_correct": [True, True, False, True],
    "correct": [False, True, False, False],
    "broken_by": ["square", None, None, "apgd_ce"],
    "margin": [-0.5, 2.0, float("nan"), -1.5],
    "forward": [1, 1, 1, 1],
}


def rows(**choice: Any) -> str:
    found = chosen_rows(COLUMNS, ExampleChoice(**choice), ["apgd_ce", "square"])
    return "".join(COLUMNS["id"][row] for row in found)


def test_stages_are_sorted_in_their_order_and_missing_values_are_last() -> None:
    assert rows(sort="broken_by") == "dabc"
    assert rows(sort="broken_by", descending=True) == "adbc"
    assert rows(sort="margin") == "dabc"
    assert rows(sort="margin", descending=True) == "badc"
    assert rows() == "abcd"


def test_an_image_is_broken_by_corruptions_if_one_breaks_it() -> None:
    flags = {"id": ["a", "b", "c"], "correct": [True, True, False], "corrupted": ["101", "111", "000"]}
    assert [outcome_of(flags, row) for row in range(3)] == ["broken", "survived", "wrong"]
    del flags["correct"]  # of stored corrupted images
    assert [outcome_of(flags, row) for row in range(3)] == ["wrong", "right", "wrong"]


def test_filters_are_by_outcome_and_class() -> None:
    assert [outcome_of(COLUMNS, row) for row in range(4)] == ["broken", "survived", "wrong", "broken"]
    assert rows(only="broken") == "ad"
    assert rows(only="survived") == "b"
    assert rows(label="1") == "ac"
    assert outcome_of({"id": ["a"], "correct": [1]}, 0) == "right"
    assert outcome_of({"id": ["a"], "nll": [1.0]}, 0) == ""


def test_columns_that_all_shards_have_are_joined_and_lists_left_out() -> None:
    shards = [{"id": ["a"], "loss": [1.0], "cells": [[1, 2]]}, {"id": ["b"], "loss": [2.0], "cells": [[3]]}]
    assert joined_columns(shards) == {"id": ["a", "b"], "loss": [1.0, 2.0]}
    assert joined_columns([{"id": ["a"], "x": [1]}, {"id": ["b"]}]) == {"id": ["a", "b"]}
    assert joined_columns([]) == {}
    answered = {"id": ["a"], "correct": [0], "clean_correct": [0]}
    for name in ("clean", "token_noise"):
        result = EvaluationResult.model_validate(row(name, {"top1": METRIC}))
        assert "clean_correct" not in joined_columns([answered], result), "there was no pass before"
    attack = EvaluationResult.model_validate(row("pgd", {"top1": METRIC}, params={"epsilon": "1/255"}))
    assert "clean_correct" in joined_columns([answered], attack)
    assert joined_columns([{"id": ["a", "b"], "curve": [None, [0.1] * 9]}]) == {"id": ["a", "b"]}


def test_a_page_has_few_columns_and_none_of_cost() -> None:
    assert shown_columns(COLUMNS) == ["id", "label", "broken_by", "margin"]
    assert len(shown_columns({f"c{number}": [] for number in range(50)})) == MAX_COLUMNS


def test_other_norms_and_equal_values_are_folded() -> None:
    columns = {"id": ["a", "b"], "label": [1, 1], "l2": [0.5, 0.25], "l1": [3.0, 2.0], "l0": [9, 8]}
    columns |= {"correct5": [True, True], "loss": [None, None]}
    assert folded_columns(columns, [*columns], "Linf") == {"l1", "l0", "correct5", "loss"}
    assert folded_columns(columns, [*columns], "L1") == {"l0", "correct5", "loss"}
    single = {name: values[:1] for name, values in columns.items()}
    assert folded_columns(single, [*single], "") == {"l1", "l0"}


def test_the_smallest_epsilon_that_breaks_an_example() -> None:
    def attack(*correct: int) -> dict[str, list[Any]]:
        return {"id": ["a", "b", "c"], "correct": list(correct), "clean_correct": [1, 1, 0]}

    given = [(0.02, attack(0, 0, 0)), (0.01, attack(0, 1, 0)), (0.04, attack(0, 0, 0))]
    assert smallest_epsilons(["a", "b", "c", "d"], given) == [0.01, 0.02, 0.0, None]
    assert smallest_epsilons(["a", "b", "c"], given) == [0.01, 0.02, 0.0], "in one order"


def test_tables_of_fifty_thousand_examples_are_kept_between_pages() -> None:
    facts = dict.fromkeys(
        ("label", "prediction", "correct", "clean_correct", "forward", "backward", "loss"), 0.5
    )
    ids = [f"val/n01440764/ILSVRC2012_val_{place:08d}.JPEG" for place in range(1000)]
    table = {"id": ids, **{name: [value] * 1000 for name, value in facts.items()}}
    assert 50 * table_weight(table) < MAX_KEPT
