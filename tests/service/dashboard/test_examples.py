"""Outcomes of an evaluation, example by example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.dashboard import examples
from assay.service.dashboard.example_rows import (
    MAX_COLUMNS,
    ExampleChoice,
    chosen_rows,
    joined_columns,
    outcome_of,
    shown_columns,
    smallest_epsilons,
)
from assay.service.store.rows import OutcomeRow
from tests.service.conftest import provenance, result
from tests.support.pages import page

Make = Callable[..., dict[str, Any]]
COLUMNS: dict[str, list[Any]] = {
    "id": ["a", "b", "c", "d"],
    "label": [1, 2, 1, 2],
    "clean_correct": [True, True, False, True],
    "correct": [False, True, False, False],
    "broken_by": ["square", None, None, "apgd_ce"],
    "margin": [-0.5, 2.0, float("nan"), -1.5],
    "forward": [1, 1, 1, 1],
}


@pytest.fixture
def job(api: httpx.Client, worker: Any, evaluate_body: Make) -> str:
    """A job with two attacks that differ in epsilon, of 250 examples each."""
    grid = [{"name": "pgd", "params": {"epsilon": epsilon}} for epsilon in ("1/255", "2/255")]
    found = str(api.post("/api/v1/jobs", json=evaluate_body(evaluations=grid)).json()["id"])
    worker.plan(found, 250)
    for index in range(2):
        claim = worker.claim(found)
        correct = [index == 0 or number % 2 == 0 for number in range(250)]
        columns = {
            "id": [f"x{number:03d}" for number in range(250)],
            "label": [number % 3 for number in range(250)],
            "clean_correct": [number != 0 for number in range(250)],
            "correct": [right and number != 0 for number, right in enumerate(correct)],
            "loss": [number / 10 for number in range(250)],
        }
        worker.store.shards.finish(claim, OutcomeRow(claim.evaluation, 0, 250, columns, 1.0, 250, 0, {}))
        item = claim.spec["evaluations"][claim.evaluation]
        worker.store.results.save(found, claim.evaluation, result(item, list(map(int, correct))))
    assert worker.store.jobs.succeed(found, provenance())
    return found


def test_examples_are_sorted_filtered_and_paged(api: httpx.Client, job: str) -> None:
    path = f"/jobs/{job}/examples/1"
    text = page(api, path)
    assert "250 of 250 examples, page 1 of 3" in text
    assert text.index("x000") < text.index("x099")
    assert "x100" not in text
    assert "x100" in page(api, f"{path}?page=2")
    text = page(api, f"{path}?sort=loss&only=broken&label=1")
    assert "42 of 250 examples" in text
    assert text.index("x247") < text.index("x001")
    assert "outcomes-001-pgd.csv" in text


def test_the_smallest_epsilon_is_over_the_attacks_of_the_name(api: httpx.Client, job: str) -> None:
    text = page(api, f"/jobs/{job}/examples/0?sort=epsilon")
    assert "wrong before" in text
    assert "2/255" in text
    assert ">1/255<" not in text


def test_wrong_parameters_are_refused_by_name(api: httpx.Client, job: str) -> None:
    wrong = ("sort=los", "order=up", "only=brokn", "page=4", "page=0", "sorted=loss", "label=1&label=2")
    for query in wrong:
        text = page(api, f"/jobs/{job}/examples/1?{query}", 422)
        assert f"query.{query.partition('=')[0]}" in text


def test_too_many_examples_are_refused_with_the_limit(
    api: httpx.Client, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "MAX_EXAMPLES", 300)
    assert "Smallest epsilon" not in page(api, f"/jobs/{job}/examples/1")  # of 500 examples together
    monkeypatch.setattr(examples, "MAX_EXAMPLES", 249)
    text = page(api, f"/jobs/{job}/examples/1", 422)
    assert "at most 249" in text
    assert "outcomes-001-pgd.csv" in text


def test_an_evaluation_without_results_is_a_404(api: httpx.Client, job: str) -> None:
    for index in ("2", "-1"):
        assert "has no results" in page(api, f"/jobs/{job}/examples/{index}", 404)


def rows(**choice: Any) -> str:
    found = chosen_rows(COLUMNS, ExampleChoice(**choice), ["apgd_ce", "square"])
    return "".join(COLUMNS["id"][row] for row in found)


def test_stages_are_sorted_in_their_order_and_missing_values_are_last() -> None:
    assert rows(sort="broken_by") == "dabc"
    assert rows(sort="broken_by", descending=True) == "adbc"
    assert rows(sort="margin") == "dabc"
    assert rows(sort="margin", descending=True) == "badc"
    assert rows() == "abcd"


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


def test_a_page_has_few_columns_and_none_of_cost() -> None:
    assert shown_columns(COLUMNS) == ["id", "label", "broken_by", "margin"]
    assert len(shown_columns({f"c{number}": [] for number in range(50)})) == MAX_COLUMNS


def test_the_smallest_epsilon_that_breaks_an_example() -> None:
    def attack(*correct: int) -> dict[str, list[Any]]:
        return {"id": ["a", "b", "c"], "correct": list(correct), "clean_correct": [1, 1, 0]}

    given = [(0.02, attack(0, 0, 0)), (0.01, attack(0, 1, 0)), (0.04, attack(0, 0, 0))]
    assert smallest_epsilons(["a", "b", "c", "d"], given) == [0.01, 0.02, 0.0, None]
