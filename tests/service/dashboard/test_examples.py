"""Outcomes of an evaluation, example by example."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.dashboard import examples
from assay.service.settings import Settings
from assay.service.store.rows import OutcomeRow
from assay.service.store.store import Store
from tests.service.conftest import provenance, result
from tests.service.galleries.test_pages import gallery, image
from tests.support.pages import Tags, page

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


def test_the_way_to_an_example_and_on_keeps_the_choice(api: httpx.Client, job: str) -> None:
    choice = "sort=loss&order=descending&only=broken&label=1"
    path = f"/jobs/{job}/examples/1"

    def links(text: str) -> dict[str | None, str | None]:
        return {a.get("rel") or a.get("class"): a["href"] for tag, a in Tags(text).found if tag == "a"}

    first = links(page(api, f"{path}?{choice}"))
    chosen = [number for number in range(249, 0, -1) if number % 2 and number % 3 == 1]
    assert first["id"] == f"{path}/{chosen[-1]}?{choice}", "the last of its rows"
    text = page(api, f"{path}/{chosen[0]}?{choice}")
    assert "Broken example 1 of 42 of class 1 by Loss, number 247 of the data (0 to 249), true class" in text
    assert f'<a href="{path}?{choice.replace("&", "&amp;")}">Examples of pgd' in text
    assert "prev" not in links(text)
    for before, number, after in zip(chosen, chosen[1:5], chosen[2:], strict=False):
        found = links(page(api, f"{path}/{number}?{choice}"))
        assert (found["prev"], found["next"]) == (f"{path}/{before}?{choice}", f"{path}/{after}?{choice}")
    other = page(api, f"{path}/2?{choice}")
    assert "Number 2 of the data (0 to 249), not among the 42 chosen" in other
    assert links(other)["next"] == f"{path}/3?{choice}"
    assert "query.only" in page(api, f"{path}/2?only=brokn", 422)


def test_columns_that_say_nothing_are_folded(
    api: httpx.Client, worker: Any, evaluate_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = str(api.post("/api/v1/jobs", json=evaluate_body(evaluations=[{"name": "pgd"}])).json()["id"])
    worker.plan(found, 2)
    claim = worker.claim(found)
    columns = {
        "id": ["a", "b"],
        "correct": [True, False],
        "clean_correct": [True] * 2,
        "correct5": [True] * 2,
    }
    columns |= {"linf": [0.25, 0.5], "l1": [3.0, 4.0], "loss": [1.5, 2.5]}
    worker.store.shards.finish(claim, OutcomeRow(0, 0, 2, columns, 1.0, 2, 0, {}))
    worker.store.results.save(found, 0, result(claim.spec["evaluations"][0], [1, 0]))
    for path in (f"/jobs/{found}/examples/0", f"/jobs/{found}/examples/0/1"):
        text = page(api, path)
        assert "L∞" in text
        assert '<th scope="col">L1' not in text.replace(' class="number"', "").replace(f'<a href="{path}', "")
        assert f'<a href="{path}?all=yes' in text
        assert re.search("Unfold (Top 5, )?L1<", text)
        every = page(api, f"{path}?all=yes")
        assert re.search("Fold (Top 5, )?L1<", every)
        assert ">4<" in every
        assert ">4<" not in text
    assert ">4<" in page(api, f"/jobs/{found}/examples/0?sort=l1")
    assert "query.all" in page(api, f"/jobs/{found}/examples/0?all=no", 422)


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


def test_rows_lead_to_their_pages_with_a_thumbnail_where_a_picture_was_kept(
    api: httpx.Client, job: str, app_store: Store, settings: Settings
) -> None:
    content = json.dumps(gallery(image(id="x005"), image(id="x009"), image(id="x005"))).encode()
    path = settings.artifacts / job / "gallery-001-pgd.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    app_store.artifacts.add(job, path.name, str(path), len(content), "a" * 64, "application/json")
    tags = Tags(page(api, f"/jobs/{job}/examples/1?sort=id")).found
    thumbs = [a for tag, a in tags if tag == "img" and a.get("class") == "thumb"]
    assert [(a["src"], a["loading"]) for a in thumbs] == [
        (f"/jobs/{job}/gallery/1/{number}/changed.png", "lazy") for number in (0, 1)
    ]
    links = [a["href"] for tag, a in tags if tag == "a" and a.get("class") == "id"]
    assert links == [f"/jobs/{job}/examples/1/{number}?sort=id" for number in range(100)]
    assert "Example <bdi>x247</bdi>" in page(api, f"/jobs/{job}/examples/1/247")
    assert ">1 cat</option>" in page(api, f"/jobs/{job}/examples/1")
    path.write_bytes(b"{")
    assert "thumb" not in page(api, f"/jobs/{job}/examples/0")


def test_of_many_classes_a_class_is_typed(
    api: httpx.Client, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "MAX_CLASSES", 2)
    text = page(api, f"/jobs/{job}/examples/1?label=2&only=broken")
    assert "of 250 examples" in text
    typed = next(a for tag, a in Tags(text).found if tag == "input" and a.get("name") == "label")
    assert typed["value"] == "2"
    assert "wrong from the start" in text
    refused = api.get(f"/jobs/{job}/examples/1?label=abc")
    assert refused.status_code == 422
    assert refused.json()["error"]["details"][0] == {
        "loc": ["query", "label"],
        "message": "must be the number of a class",
        "given": "abc",
        "allowed": "such as 3",
        "nearest": None,
    }
