"""The page that compares jobs, and the one that chooses them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.contract.results import Results
from assay.service.dashboard.comparison_view import answers
from assay.service.metrics.compare.comparison import ComparedValue, Comparison, ComparisonRow
from assay.service.settings import Settings
from assay.service.store.store import Store

Make = Callable[..., dict[str, Any]]
PAGE = {"Accept": "text/html"}


@pytest.fixture
def finished(api: httpx.Client, worker: Any, evaluate_body: Make) -> Callable[..., str]:
    def finished(*correct: list[int], **changes: Any) -> str:
        job_id = str(api.post("/api/v1/jobs", json=evaluate_body(**changes)).json()["id"])
        worker.run(job_id, *correct)
        return job_id

    return finished


def page(api: httpx.Client, path: str, status: int = 200) -> str:
    answer = api.get(path, headers=PAGE)
    assert answer.status_code == status, answer.text[:2000]
    return answer.text


def test_values_differences_and_marks(api: httpx.Client, finished: Callable[..., str]) -> None:
    first = finished([1] * 40, [1] * 40)
    second = finished([1] * 40, [1] * 10 + [0] * 30)
    text = page(api, f"/compare?jobs={first},{second}")
    assert "Comparison of 2 jobs" in text
    assert "100.0 %" in text
    assert "<b>-75.0 points</b>" in text
    assert "-75.0 %" not in text
    assert "p (McNemar)" in text
    assert "p (Holm)" in text
    assert text.count('<strong class="verdict worse">worse</strong>') == 1
    assert "25.0 %" in text
    assert f"/api/v1/report?jobs={first},{second}&amp;format=tex" in text
    assert page(api, f"/compare?jobs={first},{second}") == text
    assert "p (Benjamini-Hochberg)" in page(api, f"/compare?jobs={first},{second}&adjust=benjamini_hochberg")


def test_the_answer_is_told_first(api: httpx.Client, finished: Callable[..., str]) -> None:
    first = finished([1] * 40, [1] * 40, name="ours")
    others = [
        finished([1] * 40, [1] * right + [0] * (40 - right), name=f"{right} right") for right in (10, 39)
    ]
    text = html.unescape(re.sub(r"<[^>]+>", "", page(api, f"/compare?jobs={first},{','.join(others)}")))
    worse = re.search(r"10 right is worse than ours \(pgd (.+)\)\.", text)
    assert worse
    assert re.fullmatch(r"epsilon=\S+: top1 -75.0 points \[-\d.+, -\d.+\], adjusted p < 0.0001", worse[1])
    same = re.search(r"39 right is not told apart from ours \(pgd .+: top1 -2.5 points .+ p 1\)\.", text)
    assert same
    assert worse.start() < same.start() < text.index("Parameters that differ")


def test_what_is_not_tested_is_no_answer() -> None:
    values = [ComparedValue(job=job, value=1.0, ci_low=None, ci_high=None, n=1) for job in ("a", "b")]
    row = ComparisonRow(
        evaluation="efficiency", params={}, data={}, protocol="pixel", metric="parameters",
        higher_is_better=False, difference=9.0, values=values,
    )  # fmt: skip
    compared = Comparison(jobs=["a", "b"], warnings=[], rows=[row])
    assert answers(compared, Results(job="a", complete=True, evaluations=[], provenance=None)) == []


def test_the_baseline_is_the_first_or_the_chosen_job(api: httpx.Client, finished: Callable[..., str]) -> None:
    first = finished([1] * 40, [1] * 40, name="all right")
    second = finished([1] * 40, [0] * 40, name="all wrong")
    text = page(api, f"/compare?jobs={first},{second}&baseline={second}")
    assert '<strong class="verdict better">better</strong>' in text
    listed = text.partition('id="jobs"')[2]
    assert listed.index("all wrong") < listed.index("all right")
    assert "+100.0 points" in text
    wrong = page(api, f"/compare?jobs={first},{second}&baseline={'0' * 26}", 422)
    assert "none of the compared jobs" in wrong


def test_a_job_without_an_evaluation_has_an_empty_cell(
    api: httpx.Client, worker: Any, finished: Callable[..., str], evaluate_body: Make
) -> None:
    first, second = finished([1, 0], [1, 0]), finished([1, 1], [0, 0])
    body = evaluate_body(evaluations=[{"name": "clean"}])
    third = api.post("/api/v1/jobs", json=body).json()["id"]
    worker.run(third, [1, 0])
    text = page(api, f"/compare?jobs={first},{second},{third}")
    assert 'aria-label="not measured"' in text
    assert "not_common" in text


def test_examples_on_which_the_jobs_disagree(api: httpx.Client, finished: Callable[..., str]) -> None:
    first, second = finished([1, 1, 1], [1, 0, 1]), finished([1, 1, 1], [0, 0, 1])
    address = f"/compare?jobs={first},{second}"
    assert "common examples" not in page(api, address).split("Examples on which they disagree")[1]
    assert "agree on all of their 3 common examples" in page(api, f"{address}&evaluation=0")
    text = page(api, f"{address}&evaluation=1")
    assert "disagree on 1 of 3 common examples" in text
    assert ">x0<" in text
    assert ">x1<" not in text
    assert '<span class="answer wrong">wrong</span>' in text
    wrong = page(api, f"{address}&evaluation=2", 422)
    assert "no results of an evaluation 2" in wrong


def test_pictures_of_disagreements_stand_beside_them(
    api: httpx.Client, app_store: Store, settings: Settings, finished: Callable[..., str]
) -> None:
    first, second = finished([1, 1, 1], [1, 1, 1]), finished([1, 1, 1], [0, 0, 1])
    shot = base64.b64encode(b"\x89PNG").decode()
    answer = {"prediction": 1, "confidence": 0.9}
    item = {
        "kind": "image", "id": "x1", "rank": 0, "succeeded": True, "label": 1,
        "before": answer, "after": answer,
        "width": 2, "height": 2, "factor": 1.0, "linf": 0.1, "l2": 0.1,
        "clean": shot, "changed": shot, "difference": shot,
    }  # fmt: skip
    gallery = {"kind": "image", "evaluation": "pgd", "params": {}, "protocol": "pixel", "classes": []}
    content = json.dumps({**gallery, "items": [item]}).encode()
    path = settings.artifacts / second / "gallery-001-pgd.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    app_store.artifacts.add(second, path.name, str(path), len(content), digest, "application/json")
    text = page(api, f"/compare?jobs={first},{second}&evaluation=1")
    assert f'src="/jobs/{second}/gallery/1/0/changed.png"' in text
    assert text.index(">x1<") < text.index(">x0<"), "examples with pictures are first"
    assert text.count('<img class="small"') == 1
    assert f'<a href="/jobs/{second}/gallery/1">B <bdi>' in text


def test_jobs_have_names_and_what_differs_is_on_top(api: httpx.Client, finished: Callable[..., str]) -> None:
    first, second = finished([1], [1], name="ours"), finished([1], [1], name="", seed=5)
    text = page(api, f"/compare?jobs={first},{second}")
    assert f'<a href="/jobs/{first}" title="ours {first}">ours</a>' in text
    assert f'<a href="/jobs/{second}" title="{second}">tiny_vit, seed 5</a>' in text
    differing = text.partition("Parameters that differ")[2].partition("</table>")[0]
    assert "<code>seed</code>" in differing
    assert "<code>model" not in differing
    assert text.index("Parameters that differ") < text.index("Side by side")
    same = page(api, f"/compare?jobs={first},{finished([1], [1])}")
    assert "have the same parameters" in same


def test_the_form_of_the_jobs_page_leads_to_the_address_that_holds_the_choice(api: httpx.Client) -> None:
    ids = ["0" * 26, "1" * 26]
    answer = api.get(f"/compare?job={ids[0]}&job={ids[1]}&job={ids[0]}", headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/compare?jobs={ids[0]},{ids[1]}")
    answer = api.get(f"/compare?job={ids[0]}&search=a+b&do=search", headers=PAGE)
    assert answer.headers["location"] == f"/compare?jobs={ids[0]}&choose=yes&search=a+b"
    assert api.get("/compare?do=compare&search=", headers=PAGE).headers["location"] == "/compare?"


def test_the_picker_refuses_too_many_jobs_and_keeps_them(
    api: httpx.Client, finished: Callable[..., str]
) -> None:
    ids = [finished([1], [1]) for _ in range(11)]
    text = page(api, f"/compare?do=compare&{'&'.join(f'job={one}' for one in ids)}", 422)
    assert "A comparison has 2 to 10 jobs; 11 are chosen." in text
    assert [one for one in ids if f'value="{one}" checked' not in text] == []


def test_the_picker_keeps_what_is_chosen(api: httpx.Client, finished: Callable[..., str]) -> None:
    chosen, other = finished([1], [1], name="alpha"), finished([1], [1], name="beta")
    text = page(api, f"/compare?jobs={chosen}")
    assert f'value="{chosen}" checked' in text
    assert f'value="{other}" aria-label' in text
    text = page(api, f"/compare?jobs={chosen}&choose=yes&search=gamma")
    assert f'value="{chosen}" checked' in text
    assert other not in text
    assert "No job has finished" not in text


def test_an_empty_picker(api: httpx.Client) -> None:
    assert "No job has finished" in page(api, "/compare")
    assert "No finished job matches" in page(api, "/compare?search=x&choose=yes")


@pytest.mark.parametrize(
    ("query", "status", "part"),
    [
        ("jobs=" + ",".join(f"{i:026d}" for i in range(11)), 422, "11 jobs are given"),
        (f"jobs={'0' * 26}", 404, "0" * 26),
        ("jobs=a,b", 404, "there is no job a"),
        ("jbos=a", 422, "query.jbos"),
        ("jobs=a&jobs=b", 422, "more than once"),
        ("adjust=hlom", 422, "<code>holm</code>"),
        ("metrics=some", 422, "query.metrics"),
        ("page=0", 422, "query.page"),
        ("evaluation=-1", 422, "query.evaluation"),
    ],
)
def test_wrong_addresses_are_error_pages(api: httpx.Client, query: str, status: int, part: str) -> None:
    assert part in page(api, f"/compare?{query}", status)


def test_a_job_without_results_is_named(
    api: httpx.Client, finished: Callable[..., str], evaluate_body: Make
) -> None:
    first = finished([1], [1])
    queued = api.post("/api/v1/jobs", json=evaluate_body()).json()["id"]
    assert f"job {queued} is queued" in page(api, f"/compare?jobs={first},{queued}", 409)


def test_single_trainings_are_told_to_be_weights(
    api: httpx.Client, worker: Any, train_body: Make, evaluate_body: Make
) -> None:
    ids = []
    for seed in range(2):
        trained = api.post("/api/v1/jobs", json=train_body(seed=seed)).json()["id"]
        worker.train(trained)
        body = evaluate_body(model={"name": "tiny_vit", "weights": {"job": trained}})
        ids.append(api.post("/api/v1/jobs", json=body).json()["id"])
        worker.run(ids[-1], [1, 0], [1, 0])
    text = page(api, f"/compare?jobs={','.join(ids)}")
    assert "Weights, not methods." in text
    assert '<a href="/designs#new">' in text
    assert "POST" not in text


def test_a_comparison_of_ended_jobs_is_made_once(
    api: httpx.Client, finished: Callable[..., str], app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = finished([1, 1], [1, 0]), finished([1, 1], [0, 0])
    address = f"/compare?jobs={first},{second}"
    text = page(api, address)
    monkeypatch.setattr(app_store.results, "outcomes", None)
    assert page(api, address) == text
    app_store.jobs.delete(first)
    assert first in page(api, address, 404)


def test_long_comparisons_have_pages(
    api: httpx.Client, finished: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.service.dashboard.compare.ROWS_PER_PAGE", 1)
    first, second = finished([1, 1], [1, 0]), finished([1, 1], [0, 0])
    text = page(api, f"/compare?jobs={first},{second}")
    assert "More of the 2 metrics" in text
    assert "page=2" in text
    assert "More of" not in page(api, f"/compare?jobs={first},{second}&page=2")


def test_a_tenant_compares_its_own_jobs(
    api: httpx.Client,
    finished: Callable[..., str],
    serve: Callable[..., Any],
    settings: Any,
    app_store: Store,
) -> None:
    first, second = finished([1, 1], [1, 0]), finished([1, 1], [0, 0])
    key = app_store.keys.create("other", ["read"], tenant="other")[1]
    headers = {**PAGE, "Authorization": f"Bearer {key}"}
    with serve(settings.model_copy(update={"require_keys": True}), app_store) as other:
        assert other.get(f"/compare?jobs={first},{second}", headers=headers).status_code == 404
        assert first not in other.get("/compare", headers=headers).text
