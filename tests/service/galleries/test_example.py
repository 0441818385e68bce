"""The page of an example: its pictures, and what every evaluation made of it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.store.rows import OutcomeRow
from assay.service.store.store import Store
from tests.service.conftest import provenance, result
from tests.service.galleries.test_pages import HOSTILE, gallery, image, maps, series, text
from tests.support.pages import PAGE, Tags, page

Make = Callable[..., dict[str, Any]]
N = 30


@pytest.fixture
def job(api: httpx.Client, worker: Any, evaluate_body: Make) -> str:
    """A job with two attacks that differ in epsilon, and one without; all break every second example."""
    attacks = [{"name": "pgd", "params": {"epsilon": epsilon}} for epsilon in ("1/255", "2/255")]
    body = evaluate_body(evaluations=[*attacks, {"name": "clean"}])
    found = str(api.post("/api/v1/jobs", json=body).json()["id"])
    worker.plan(found, N)
    for index in range(3):
        claim = worker.claim(found)
        correct = [number % 2 == 0 or index == 0 for number in range(N)]
        columns: dict[str, list[Any]] = {
            "id": [f"x{number}" for number in range(N)],
            "label": [1] * N,
            "prediction": [1 if right else 2 for right in correct],
            "correct": correct,
            "clean_correct": [True] * N if index < 2 else correct,
        }
        if index < 2:
            columns |= {"margin": [-0.25] * N, "queries": [11] * N}
        worker.store.shards.finish(claim, OutcomeRow(claim.evaluation, 0, N, columns, 1.0, N, 0, {}))
        item = claim.spec["evaluations"][claim.evaluation]
        worker.store.results.save(found, claim.evaluation, result(item, list(map(int, correct))))
    assert worker.store.jobs.succeed(found, provenance())
    return found


@pytest.fixture
def store_file(app_store: Store, settings: Settings, job: str) -> Callable[[str, bytes], None]:
    def store(name: str, content: bytes) -> None:
        path = settings.artifacts / job / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        app_store.artifacts.add(job, name, str(path), len(content), digest, "application/json")

    return store


def saved(*, ids: str, values: list[float]) -> bytes:
    """A safetensors file of two images of 1 x 1 x 2 pixels."""
    entry = {"dtype": "F32", "shape": [2, 1, 1, 2], "data_offsets": [0, 16]}
    header = json.dumps({"__metadata__": {"ids": ids}, "images": entry}).encode()
    return len(header).to_bytes(8, "little") + header + struct.pack("<4f", *values)


def images(text: str) -> list[str]:
    return [str(a["src"]) for tag, a in Tags(text).found if tag == "img" and "icon" not in str(a["src"])]


def test_every_evaluation_says_what_became_of_the_example(api: httpx.Client, job: str) -> None:
    shown = page(api, f"/jobs/{job}/examples/1/3")
    assert "Example <bdi>x3</bdi>" in shown
    assert "<title>Example x3, number 3 " in shown
    assert "Number 3 of the data (0 to 29)" in shown
    rows = shown.split("<tbody>")[1].split("</tr>")
    assert all(word in row for row, word in zip(rows, ("survived", "broken", "wrong"), strict=False))
    assert ">2/255<" in rows[0]
    assert ">2/255<" in rows[1]
    assert ">-0.25<" in rows[1]
    links = {a.get("rel"): a for tag, a in Tags(shown).found if tag in ("a", "link")}
    assert links["prev"]["href"] == f"/jobs/{job}/examples/1/2"
    assert links["next"]["href"] == f"/jobs/{job}/examples/1/4"
    assert links["next"]["data-keys"] == "j ArrowRight"
    assert links["canonical"]["href"] == f"{api.base_url}/jobs/{job}/examples/1/3"
    assert 'rel="prev"' not in page(api, f"/jobs/{job}/examples/1/0")
    assert 'rel="next"' not in page(api, f"/jobs/{job}/examples/1/{N - 1}")


@pytest.mark.parametrize(
    ("evaluation", "words"), [(1, ["broken", "survived", "wrong"]), (2, ["wrong", "right"])]
)
def test_examples_as_they_are_are_right_or_wrong(
    api: httpx.Client, job: str, evaluation: int, words: list[str]
) -> None:
    shown = page(api, f"/jobs/{job}/examples/{evaluation}")
    offered = [a["value"] for tag, a in Tags(shown.split("Class <")[0]).found if tag == "option"]
    assert offered == ["", *words]
    seen = {word for word in ("right", "wrong", "broken", "survived") if f'">{word}</span>' in shown}
    assert seen == set(words) - ({"wrong"} if evaluation == 1 else set())
    only = page(api, f"/jobs/{job}/examples/{evaluation}?only={words[0]}")
    assert f"{N // 2} of {N} examples" in only


def test_items_of_a_gallery_lead_to_the_page_of_their_example(
    api: httpx.Client, job: str, store_file: Any
) -> None:
    content = gallery(image(id="x7"), image(id="gone"))
    store_file("gallery-001-pgd.json", json.dumps(content).encode())
    shown = page(api, f"/jobs/{job}/gallery/1")
    assert f'<a href="/jobs/{job}/gallery/1/0">Example x7</a>' in shown
    assert f'<a href="/jobs/{job}/gallery/1/0">Example x7</a>' in page(api, f"/jobs/{job}")
    answer = api.get(f"/jobs/{job}/gallery/1/0", headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job}/examples/1/7")
    assert "has no outcome of example" in page(api, f"/jobs/{job}/gallery/1/1", 404)
    assert "the gallery has no example 9" in page(api, f"/jobs/{job}/gallery/1/9", 404)


def test_what_is_not_there_is_a_404_in_words(api: httpx.Client, job: str, evaluate_body: Make) -> None:
    for number in (N, -1, 10**30):
        assert "allowed: 0 to 29" in page(api, f"/jobs/{job}/examples/1/{number}", 404)
    assert "has no results" in page(api, f"/jobs/{job}/examples/3/0", 404)
    fresh = api.post("/api/v1/jobs", json=evaluate_body(name="fresh")).json()["id"]
    assert "has no results" in page(api, f"/jobs/{fresh}/examples/0/0", 404)
    assert "there is no job" in page(api, f"/jobs/{'0' * 26}/examples/1/0", 404)


@pytest.mark.costly
@pytest.mark.parametrize("make", [image, maps, text, series])
def test_items_of_every_kind_are_shown_in_large(
    api: httpx.Client, job: str, store_file: Callable[[str, bytes], None], make: Make
) -> None:
    kept = [make(id="x1"), make(id="x3"), make(id="x5")]
    store_file("gallery-001-pgd.json", json.dumps(gallery(*kept)).encode())
    shown = page(api, f"/jobs/{job}/examples/1/3")
    assert HOSTILE not in shown
    assert "No picture" not in shown
    if make in (image, maps):
        assert f"/jobs/{job}/gallery/1/1/changed.png" in images(shown)
        assert not [one for one in images(shown) if "/gallery/1/0/" in one]
        assert 'width="256"' in shown
    else:
        assert ("<mark>" if make is text else "<polyline") in shown
    if make is image:
        assert "cat (90.0 %)" in shown
        assert "true class <bdi>cat</bdi>" in shown
    other = page(api, f"/jobs/{job}/examples/0/3")
    assert "No picture of this example was kept. A gallery" in other
    assert "save_adversarial" in other
    assert f'With pictures under: <a href="/jobs/{job}/examples/1/3">' in other
    assert "attacks no example" in page(api, f"/jobs/{job}/examples/2/4")


def test_a_saved_image_is_drawn_where_no_gallery_has_the_example(
    api: httpx.Client, job: str, store_file: Callable[[str, bytes], None]
) -> None:
    store_file("adversarial-001-pgd-00000000.safetensors", saved(ids='["x1", "x3"]', values=[0, 1, 0.5, 2]))
    [address] = images(page(api, f"/jobs/{job}/examples/1/3"))
    assert address.startswith("data:image/png;base64,")
    assert images(page(api, f"/jobs/{job}/examples/1/5")) == []
    assert images(page(api, f"/jobs/{job}/examples/0/3")) == []


def test_steps_are_drawn_with_the_warnings_that_they_show(
    api: httpx.Client, job: str, store_file: Callable[[str, bytes], None], app_store: Store
) -> None:
    warned = app_store.results.of(job)[1]
    warned["warnings"] = [
        {"code": code, "severity": "caution", "message": f"Of {code}."}
        for code in ("zero_gradient", "screened")
    ]
    app_store.results.save(job, 1, warned)
    other = page(api, f"/jobs/{job}/examples/1/4")
    assert "Of zero_gradient." in other
    assert "Of screened." not in other
    assert "save_traces" in other
    steps = [["pgd", 0, step, 0.5, 1.25, 0.0, 0.0, 0.0] for step in range(3)]
    file = {"version": 1, "columns": [], "examples": {"x3": steps, HOSTILE: steps}}
    store_file("trace-001-pgd-00000000.json", json.dumps(file).encode())
    shown = page(api, f"/jobs/{job}/examples/1/3")
    assert "3 iterates. Margin 1.25" in shown
    assert "are a case of it" in shown
    address = f"/jobs/{job}/examples/1/3/trace.svg"
    assert f"{address}?scheme=light" in images(shown)
    drawn = api.get(f"{address}?scheme=dark")
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert "What the attack raises" in drawn.text
    assert api.get(f"/jobs/{job}/examples/1/4/trace.svg").status_code == 404
    assert api.get(f"/jobs/{job}/examples/1/{10**30}/trace.svg").status_code == 404
    for damaged in (b"", b"[" * 10**5, json.dumps(file | {"examples": {"x3": [["pgd"]]}}).encode()):
        store_file("trace-001-pgd-00000000.json", damaged)
        assert "Of zero_gradient." in page(api, f"/jobs/{job}/examples/1/3")
        assert api.get(address).status_code == 404
