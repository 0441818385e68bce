"""The page of an interactive plot, and its scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.plots import render

Make = Callable[..., dict[str, Any]]
PAGE = {"Accept": "text/html"}


@pytest.fixture
def job(api: httpx.Client, worker: Any, evaluate_body: Make) -> str:
    job_id = str(api.post("/api/v1/jobs", json=evaluate_body(name="<b>measured</b>")).json()["id"])
    worker.run(job_id, [1, 1, 0, 1], [1, 0, 0, 1])
    return job_id


@pytest.mark.costly
def test_a_plot_has_a_page_with_its_picture_for_browsers_without_scripts(api: httpx.Client, job: str) -> None:
    answer = api.get(f"/plots/cost?jobs={job}", headers=PAGE)
    assert answer.status_code == 200
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert f'data-spec="/api/v1/plots/cost?jobs={job}&amp;format=vl.json&amp;"' in answer.text
    assert "<img src=" in answer.text
    assert "<b>measured" not in answer.text


def test_unknown_plots_and_jobs_are_error_pages(api: httpx.Client, job: str) -> None:
    unknown = api.get(f"/plots/cots?jobs={job}", headers=PAGE)
    assert (unknown.status_code, "cost" in unknown.text) == (404, True)
    assert api.get(f"/plots/cost?jobs={'0' * 26}", headers=PAGE).status_code == 404
    missing = api.get(f"/plots/heatmap?jobs={job}", headers=PAGE)
    assert missing.status_code == 409
    assert "corruption" in missing.text


def test_the_scripts_are_made_once_and_kept(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(render._RENDERER, "bundle", lambda: made.append(1) or b"window.vegaEmbed = 0;" * 99)
    for _ in range(2):
        answer = api.get("/plots/vega.js", headers={"Accept-Encoding": "gzip"})
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["content-encoding"] == "gzip"
        assert "vegaEmbed" in answer.text
    assert made == [1]


def test_without_the_process_the_scripts_are_unavailable(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash() -> bytes:
        raise render.RenderError("crashed")

    monkeypatch.setattr(render._RENDERER, "bundle", crash)
    answer = api.get("/plots/vega.js")
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable")


@pytest.mark.slow
def test_the_scripts_are_those_of_the_package() -> None:
    renderer = render.Renderer()
    try:
        content = renderer.bundle()
    finally:
        renderer.close()
    assert len(content) > 500_000
    assert b"window.vegaEmbed" in content
