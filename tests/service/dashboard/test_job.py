"""Page of a job, without a browser."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.dashboard.job_facts import OTHERWISE, REMEDIES
from assay.service.dashboard.live import LiveStates
from assay.service.settings import Settings
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from assay.service.store.transactions.release import DIFFERENT
from tests.service.conftest import provenance
from tests.support.pages import NAMES, Tags, page

Make = Callable[..., dict[str, Any]]
SECTIONS = ("results", "examples", "provenance", "log", "files", "made")


def submitted(api: httpx.Client, body: dict[str, Any]) -> str:
    answer = api.post("/api/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_a_finished_job_is_shown_with_everything(api: httpx.Client, worker: Any, evaluate_body: Make) -> None:
    job = submitted(api, evaluate_body(name="measured", tags=["one"]))
    worker.run(job, [1, 1, 0, 1], [1, 0, 0, 1])
    text = page(api, f"/jobs/{job}")
    tags = Tags(text).found
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes.get("href") for tag, attributes in tags if tag == "a"}
    for section in SECTIONS:
        assert section in ids
        assert f"#{section}" in links
    # Every place that the page names is on it.
    assert {link[1:] for link in links if link and link.startswith("#")} <= set(ids)
    assert "75.0 %" in text
    sentence = (
        '<p class="headline">2 of 4 images hold at 2/255 under the strongest attack run; clean 3 of 4.</p>'
    )
    assert sentence in text
    assert (
        text.index(sentence)
        < text.index('id="plot-curve"')
        < text.index('class="cards sortable results brief"')
    )
    for path in (f"/submit?from={job}", f"/compare?jobs={job}", f"/jobs/{job}/examples/1", "/jobs?tag=one"):
        assert path in links
    for form in ("html", "md", "tex"):
        assert f"/api/v1/report?jobs={job}&format={form}" in links
    assert f'action="/jobs/{job}/cancel"' not in text
    assert f'action="/jobs/{job}/delete"' in text
    assert "Not complete" not in text
    results = re.sub(r"<[^>]*>", " ", text[text.index('class="cards sortable results brief"') :])
    assert re.search(r"epsilon=2/255 steps=10 ", results), "how hard it searched"
    assert text.index("<dt>Duration</dt>") < text.index('class="cards sortable results brief"')


def test_a_row_names_its_arithmetic_and_the_codes_of_its_warnings(
    api: httpx.Client, worker: Any, evaluate_body: Make, app_store: Store
) -> None:
    job = submitted(api, evaluate_body())
    worker.run(job, [1, 1, 0, 1], [1, 0, 0, 1])
    told = {"code": "random_outputs", "severity": "caution", "message": "draws", "evidence": {}}
    note = {"code": "screened", "severity": "note", "message": "it ran so", "evidence": {}}
    row = app_store.results.of(job)[1]
    changed = {**row, "arithmetic": "bfloat16 first, then float32", "warnings": [note, told]}
    app_store.results.save(job, 1, changed)
    text = page(api, f"/jobs/{job}")
    assert text.count("bfloat16 first, then float32</span>") == 1
    badge = re.search(r'<a class="severity caution" href="#warning-1">(.*?)</a>', text)
    assert badge is not None
    assert re.sub(r"<[^>]*>", "", badge[1]) == "caution: random_outputs"
    assert '<span class="unseen">caution: </span>' in badge[1], "the code is what people see"
    assert '<a class="severity note"' not in text, "a note is told once, folded"
    assert "it ran so" in text[text.index("note on the numbers") :]


@pytest.mark.costly
def test_what_ran_compiled_is_told_in_words(api: httpx.Client, worker: Any, evaluate_body: Make) -> None:
    job = submitted(api, evaluate_body())
    worker.plan(job)
    worker.evaluate(job, [1, 1, 0, 1])
    worker.evaluate(job, [1, 0, 0, 1])
    run = {"passes": 1200, "compilers": ["gcc 12"], "shards": 2, "of": 3, "refused": ["<short>"]}
    assert worker.store.jobs.succeed(job, {**provenance(), "device": {"type": "cpu", "compiled": run}})
    text = page(api, f"/jobs/{job}")
    said = "1,200 passes by gcc 12 in 2 of 3 shards of attacks; refused: &lt;short&gt;"
    assert f"<dt>Compiled passes</dt><dd>{said}</dd>" in text
    assert "<dt>Device</dt><dd>type=cpu</dd>" in text
    report = api.get("/api/v1/report", params={"jobs": job, "format": "md"}).text
    assert "1,200 passes by gcc 12" in report


def test_a_running_job_is_live_and_its_results_are_not_complete(
    api: httpx.Client, worker: Any, evaluate_body: Make
) -> None:
    job = submitted(api, evaluate_body())
    text = page(api, f"/jobs/{job}")
    assert f'data-live="{job}" data-reload' in text
    assert "No results yet" in text
    worker.plan(job)
    worker.evaluate(job, [1, 1, 0, 1])
    text = page(api, f"/jobs/{job}")
    assert "Not complete." in text
    assert "1 of 2 evaluations have no result yet" in text
    assert f'action="/jobs/{job}/cancel"' in text


@pytest.mark.costly
def test_a_result_of_a_running_job_is_told_to_its_open_page(
    api: httpx.Client, worker: Any, evaluate_body: Make, app_store: Store
) -> None:
    job = submitted(api, evaluate_body())
    worker.plan(job)
    store = TenantStore(app_store, View(None, everything=True))
    told = []
    for correct in (None, [1, 1, 0, 1], [1, 0, 0, 1]):
        if correct is not None:
            worker.evaluate(job, correct)
        told.append(LiveStates().of(store, [job])[0]["results"])
        text = page(api, f"/jobs/{job}")
        assert f'data-results="{told[-1]}"' in text
    assert told[0] == 0 < told[1] < told[2]
    # A browser that shows a picture does not ask for it again at the same address.
    pictures = re.findall(r'<img src="(/api/v1/jobs/[^"]+)"', text)
    assert pictures
    assert all(f"&amp;v={told[2]}&amp;" in one for one in pictures)
    assert all(api.get(html.unescape(one)).status_code == 200 for one in pictures)


def test_a_failed_job_says_what_to_do(api: httpx.Client, worker: Any, evaluate_body: Make) -> None:
    job = submitted(api, evaluate_body())
    worker.fail(job)
    text = page(api, f"/jobs/{job}")
    assert "8 GB were not enough" in text
    assert REMEDIES["out_of_memory"] in text
    assert OTHERWISE not in text
    assert f'action="/jobs/{job}/retry"' in text
    assert "No evaluation has finished" in text
    assert text.count("8 GB were not enough") == 2, "the problem, and the end of the log"


def test_a_job_without_a_log_has_a_page(
    api: httpx.Client, evaluate_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(api, evaluate_body())
    monkeypatch.setattr("assay.service.store.tenants.TenantEvents.latest", lambda *_: [])
    assert "No results yet" in page(api, f"/jobs/{job}")


def test_a_job_with_other_numbers_on_two_workers_is_to_be_planned_again(
    api: httpx.Client, worker: Any, evaluate_body: Make
) -> None:
    worker.identity = "planner"
    worker.differ(job := submitted(api, evaluate_body()), [1, 1, 0, 1])
    text = page(api, f"/jobs/{job}")
    assert REMEDIES[DIFFERENT] in html.unescape(text)
    assert f'action="/jobs/{job}/replan"' in text
    assert f'action="/jobs/{job}/retry"' not in text
    assert "The job has failed with <code>invalid</code>." in text
    assert "<code>repeated_differently</code>" in text


def test_a_waiting_job_links_to_the_one_that_it_waits_for(
    api: httpx.Client, train_body: Make, evaluate_body: Make
) -> None:
    source = submitted(api, train_body(name="the source"))
    model = {"name": "tiny_vit", "params": {"width": 16}, "weights": {"job": source}}
    job = submitted(api, evaluate_body(model=model))
    text = page(api, f"/jobs/{job}")
    assert "Waits for the weights of" in text
    assert f'<a href="/jobs/{source}"><bdi>the source</bdi></a>' in text


def test_a_training_job_has_no_evaluations_of_its_own(
    api: httpx.Client, worker: Any, train_body: Make
) -> None:
    job = submitted(api, train_body())
    worker.train(job)
    assert "no measurements of its own" in page(api, f"/jobs/{job}")


@pytest.mark.costly
def test_no_name_breaks_the_page(api: httpx.Client, worker: Any, evaluate_body: Make) -> None:
    for name in NAMES:
        shown = name.replace("\x00", "")
        job = submitted(api, evaluate_body(name=shown[:200], tags=[shown[:60]]))
        worker.run(job, [1, 0], [0, 0])
        for path in (f"/jobs/{job}", f"/jobs/{job}/examples/0"):
            text = page(api, path)
            assert len([tag for tag, _ in Tags(text).found if tag == "script"]) == 1
            assert "<img src=x" not in text
            assert ">49<" not in text
            assert "\u202e" not in text
            assert "\x1b" not in text


def test_wrong_pages_and_ids_are_refused(api: httpx.Client, worker: Any, evaluate_body: Make) -> None:
    job = submitted(api, evaluate_body())
    worker.run(job, [1, 0], [0, 0])
    assert "there is no page 2" in page(api, f"/jobs/{job}?page=2", 422)
    page(api, f"/jobs/{job}?page=0", 422)
    assert "query.pag" in page(api, f"/jobs/{job}?pag=1", 422)
    page(api, f"/jobs/{'0' * 26}", 404)
    page(api, "/jobs/nothing", 404)


def test_another_tenant_sees_nothing(
    settings: Settings, app_store: Store, serve: Any, evaluate_body: Make
) -> None:
    first = app_store.keys.create("one", ["submit"], tenant="one")[1]
    other = app_store.keys.create("two", ["submit"], tenant="two")[1]
    with serve(settings.model_copy(update={"require_keys": True}), app_store) as api:
        body = evaluate_body()
        mine = {"Authorization": f"Bearer {first}"}
        job = api.post("/api/v1/jobs", json=body, headers=mine).json()["id"]
        paths = (
            f"/jobs/{job}",
            f"/jobs/{job}/examples/0",
            f"/jobs/{job}/gallery/0",
            f"/jobs/{job}/gallery/0/0/clean.png",
            f"/jobs/{job}/pictures/plot.svg",
        )
        theirs = {"Authorization": f"Bearer {other}", "Accept": "text/html"}
        assert api.get(paths[0], headers=mine | {"Accept": "text/html"}).status_code == 200
        for path in paths:
            answer = api.get(path, headers=theirs)
            assert answer.status_code == 404
            assert f"no job {job}" in answer.text or "there is no job" in answer.text
