"""Outcomes of an evaluation, example by example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.dashboard import examples
from assay.service.store.rows import OutcomeRow
from tests.service.conftest import provenance, result
from tests.support.pages import page

Make = Callable[..., dict[str, Any]]


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
