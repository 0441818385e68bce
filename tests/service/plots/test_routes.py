from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.plots import routes
from assay.service.plots.render import RenderError

JOBS = "/api/v1/jobs"


@pytest.fixture
def finished(
    api: httpx.Client, worker: Any, evaluate_body: Callable[..., dict[str, Any]]
) -> Callable[..., str]:
    def finished(**changes: Any) -> str:
        job_id = str(api.post(JOBS, json=evaluate_body(**changes)).json()["id"])
        worker.run(job_id, [1, 1, 1, 1], [1, 1, 0, 1])
        return job_id

    return finished


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of `render`, which answers without its process."""
    calls: list[tuple[Any, ...]] = []

    def render(spec: Any, format: str, *, scheme: str, narrow: bool, cache: Any) -> bytes:  # noqa: A002
        calls.append((spec["usermeta"]["assay"]["kind"], format, scheme, cache.name))
        return b"<svg/>"

    monkeypatch.setattr(routes, "render", render)
    return calls


def test_the_plots_of_a_job_are_listed_in_words(api: httpx.Client, finished: Callable[..., str]) -> None:
    job = finished()
    items = api.get(f"{JOBS}/{job}/plots").json()["items"]
    assert [item["kind"] for item in items] == ["curve", "tradeoff", "cost"]
    assert items[0]["title"] == "Accuracy against epsilon"
    assert "100.0 % without an attack to 75.0 %" in items[0]["description"]
    assert items[0]["href"] == f"{JOBS}/{job}/plots/curve"


def test_a_plot_is_data_or_an_image(
    api: httpx.Client, finished: Callable[..., str], rendered: list[tuple[Any, ...]]
) -> None:
    address = f"{JOBS}/{finished()}/plots/curve"
    spec = api.get(address, params={"format": "vl.json"})
    assert spec.headers["content-type"] == "application/vnd.vegalite.v6+json"
    assert [row["value"] for row in spec.json()["data"]["values"]] == [1.0, 0.75]
    assert rendered == []
    image = api.get(address)
    assert (image.status_code, image.content) == (200, b"<svg/>")
    assert image.headers["content-type"] == "image/svg+xml"
    assert image.headers["content-security-policy"].startswith("default-src 'none'")
    api.get(address, params={"format": "pdf", "scheme": "dark"})
    assert rendered == [("curve", "svg", "light", "plots"), ("curve", "pdf", "dark", "plots")]
    same = api.get(address, headers={"if-none-match": image.headers["etag"]})
    assert (same.status_code, len(rendered)) == (304, 2)
    assert api.get(address, params={"scheme": "dark"}).headers["etag"] != image.headers["etag"]


def test_several_jobs_are_overlaid_under_their_names(
    api: httpx.Client, finished: Callable[..., str], rendered: list[tuple[Any, ...]]
) -> None:
    pair = f"{finished(name='first')},{finished(name='second')}"
    spec = api.get("/api/v1/plots/curve", params={"jobs": pair, "format": "vl.json"}).json()
    assert [row["job"] for row in spec["data"]["values"]] == ["first", "first", "second", "second"]
    one = api.get("/api/v1/plots/curve", params={"jobs": pair.split(",")[0]})
    assert (one.status_code, len(rendered)) == (200, 1)


def test_a_stored_plot_is_used_where_results_do_not_allow_it(
    api: httpx.Client, finished: Callable[..., str], settings: Any, app_store: Any
) -> None:
    job = finished()
    file = settings.artifacts / job / "plot-training.vl.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"description": "Training: 3 epochs.", "mark": "point"}))
    app_store.artifacts.add(job, file.name, str(file), file.stat().st_size, "0" * 64, "application/json")
    assert "training" in [item["kind"] for item in api.get(f"{JOBS}/{job}/plots").json()["items"]]
    spec = api.get(f"{JOBS}/{job}/plots/training", params={"format": "vl.json"}).json()
    assert spec["description"] == "Training: 3 epochs."
    file.write_text("{")
    assert api.get(f"{JOBS}/{job}/plots/training").status_code == 409


def test_wrong_kinds_and_lists_are_refused_with_what_is_allowed(
    api: httpx.Client, finished: Callable[..., str]
) -> None:
    job = finished()
    unknown = api.get(f"{JOBS}/{job}/plots/curv")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["details"][0]["nearest"] == "curve"
    lacking = api.get(f"{JOBS}/{job}/plots/heatmap")
    assert lacking.status_code == 409
    assert "it needs an evaluation with corruptions" in lacking.json()["error"]["message"]
    assert api.get(f"{JOBS}/{job}/plots/curve", params={"format": "gif"}).status_code == 422
    for jobs in (f"{job},{job}", ",".join(["x"] * 11)):
        assert api.get("/api/v1/plots/curve", params={"jobs": jobs}).status_code == 422
    assert api.get("/api/v1/plots/curve", params={"jobs": "0" * 26}).status_code == 404


def test_without_results_there_is_no_plot(
    api: httpx.Client, evaluate_body: Callable[..., dict[str, Any]]
) -> None:
    job = api.post(JOBS, json=evaluate_body()).json()["id"]
    for address in (f"{JOBS}/{job}/plots", f"{JOBS}/{job}/plots/curve"):
        assert api.get(address).json()["error"]["type"] == "no_results"


def test_a_plot_that_cannot_be_rendered_is_503_and_says_where_its_data_are(
    api: httpx.Client, finished: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **options: Any) -> bytes:
        raise RenderError("crashed")

    monkeypatch.setattr(routes, "render", broken)
    answer = api.get(f"{JOBS}/{finished()}/plots/curve")
    assert answer.status_code == 503
    assert "format=vl.json" in answer.json()["error"]["message"]
