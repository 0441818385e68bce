"""Outcomes of an evaluation, example by example."""

from __future__ import annotations

import json
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
    assert links == [f"/jobs/{job}/examples/1/{number}" for number in range(100)]
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
