"""Pages of studies, and their forms."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from assay.service.store.store import Store
from assay.service.store.tenants import TenantResults
from assay.service.studies import stored_results as study_results

Make = Callable[..., dict[str, Any]]
PAGE = {"Accept": "text/html"}
UNKNOWN = "0" * 26


def study_body(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "kind": "study",
        "name": "widths",
        "tags": ["s"],
        "arms": [
            {"name": "narrow", "model": {"name": "tiny_vit", "params": {"width": 16}}},
            {"name": "wide", "model": {"name": "tiny_vit", "params": {"width": 64}}},
        ],
        "data": {"name": "digits"},
        "recipe": {"name": "short"},
        "seeds": 2,
        "evaluations": [{"name": "clean"}],
    }
    return spec | changes


def posted(api: httpx.Client, **changes: Any) -> dict[str, Any]:
    answer = api.post("/api/v1/studies", json=study_body(**changes))
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def finish(api: httpx.Client, worker: Any, study: dict[str, Any], n: int = 40) -> None:
    """Trains and measures every run; the second arm is better."""
    for index, arm in enumerate(api.get(study["links"]["self"]).json()["runs"]):
        for run in arm["runs"]:
            worker.train(run["train"])
            draws = random.Random(f"{index}/{run['seed']}")
            worker.run(run["evaluate"], [int(draws.random() < 0.1 + 0.8 * index) for _ in range(n)])


def page(api: httpx.Client, path: str, status: int = 200) -> str:
    answer = api.get(path, headers=PAGE)
    assert answer.status_code == status, answer.text[:2000]
    return answer.text


def sent(api: httpx.Client, path: str, status: int = 303, **fields: str) -> httpx.Response:
    answer = api.post(path, data=fields or {"x": ""}, headers=PAGE)
    assert answer.status_code == status, answer.text[:2000]
    return answer


def test_outcomes_of_all_runs_are_read_by_evaluation(
    api: httpx.Client, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    read = TenantResults.outcomes_of_jobs

    def outcomes(self: TenantResults, job_ids: Sequence[str], evaluation: int) -> Any:
        asked.append((len(job_ids), evaluation))
        return read(self, job_ids, evaluation)

    monkeypatch.setattr(TenantResults, "outcomes_of_jobs", outcomes)
    study = posted(api, seeds=3)
    finish(api, worker, study)
    assert "two-way t" in page(api, f"/studies/{study['id']}"), "of the rows of all runs"
    assert asked == [(6, 0)]


def test_the_list_shows_progress(api: httpx.Client) -> None:
    assert "No studies yet" in page(api, "/studies")
    study = posted(api)
    text = page(api, "/studies")
    assert f"/studies/{study['id']}" in text
    assert "0/8 jobs" in text
    assert "4 queued, 4 waiting" in text
    live = re.search(r'data-live="([^"]+)"', text)
    assert live is not None
    assert study["runs"][0]["runs"][0]["train"] in live[1].split(",")


def test_a_study_without_results_has_its_runs_and_actions(api: httpx.Client) -> None:
    study = posted(api)
    text = page(api, f"/studies/{study['id']}")
    assert "No evaluation has finished" in text
    assert study["runs"][1]["runs"][1]["evaluate"] in text
    assert f'action="/studies/{study["id"]}/cancel"' in text
    assert f'action="/studies/{study["id"]}/delete"' not in text
    assert "404" not in text
    page(api, f"/studies/{UNKNOWN}", 404)
    page(api, "/studies/x", 404)
    assert "query.corsor" in page(api, "/studies?corsor=1", 422)


def test_the_page_names_data_recipe_and_arithmetic(api: httpx.Client) -> None:
    arms = study_body()["arms"]
    arms[1] |= {"recipe": {"name": "short", "params": {"epochs": 7}}}
    execution = {"dtype": "bfloat16", "channels_last": True, "compile": "auto"}
    text = page(api, f"/studies/{posted(api, arms=arms, execution=execution, limit=30)['id']}")
    facts = dict(
        re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", re.sub(r"</?(?:bdi|span)[^>]*>", "", text), re.S)
    )
    assert facts["Data"].split() == ["digits,", "30", "test", "examples;", "protocol", "pixel"]
    assert facts["Recipe"].count("short epochs=") == 2
    assert "epochs=7" in facts["Recipe"]
    assert "(wide)" in facts["Recipe"]
    assert facts["Arithmetic"] == "bfloat16, channels_last, compile auto"
    text = page(api, f"/studies/{posted(api, execution={'dtype': 'float16'})['id']}")
    assert "float16 in trainings, float32 in evaluations" in text


def test_results_have_means_differences_and_notes(api: httpx.Client, worker: Any) -> None:
    study = posted(api)
    finish(api, worker, study)
    text = page(api, f"/studies/{study['id']}")
    found = api.get(study["links"]["results"]).json()["cells"][0]
    test = found["comparisons"][0]["test"]
    assert "Tested metrics" in text
    assert f"{100 * found['arms'][1]['mean']:.1f} %" in text
    assert "two-way t" in text
    assert f"{test['p_value']:.3g}" in text
    assert "p (Holm)" in text
    assert "80 % power" in text
    assert f'action="/studies/{study["id"]}/delete"' in text
    assert "Not complete" not in text


@pytest.mark.costly
def test_the_page_begins_with_what_was_found_and_the_curve(api: httpx.Client, worker: Any) -> None:
    attacks = [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "2/255"}}]
    study = posted(api, evaluations=attacks)
    path = f"/studies/{study['id']}"
    assert api.get(f"{path}/curve.svg").status_code == 409, "no evaluation has finished"
    for arm in api.get(study["links"]["self"]).json()["runs"]:
        for run in arm["runs"]:
            worker.train(run["train"])
            worker.run(run["evaluate"], [1, 1, 0, 1] * 5, [1, 0, 0, 1] * 5)
    text = page(api, path)
    assert '<p class="headline">Too small to tell' in text
    assert text.index('class="headline"') < text.index('id="study-curve"') < text.index('id="results"')
    for scheme in ("light", "dark"):
        drawn = api.get(f"{path}/curve.svg?scheme={scheme}")
        assert (drawn.status_code, drawn.headers["content-type"]) == (200, "image/svg+xml")
        assert "sandbox" in drawn.headers["content-security-policy"]
    assert f'<a href="{path}/curve">Interactive</a>' in text
    interactive = page(api, f"{path}/curve")
    assert f'data-spec="{path}/curve.vl.json?"' in interactive
    for form, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("vl.json", b"{")):
        assert f'<a href="{path}/curve.{form}?">{form}</a>' in interactive
        assert f'href="{path}/curve.{form}"' in text
        assert api.get(f"{path}/curve.{form}?").content.startswith(start)
    assert api.get(f"{path}/curve.vl.json?&scheme=dark").status_code == 200
    for name, status in (("curve.svg", 404), ("curve.gif", 404), ("curve", 404)):
        assert api.get(f"/studies/{UNKNOWN}/{name}").status_code == status


def test_warnings_of_runs_have_their_message(api: httpx.Client, worker: Any, app_store: Store) -> None:
    study = posted(api)
    finish(api, worker, study)
    (arm, *_) = api.get(study["links"]["self"]).json()["runs"]
    job = arm["runs"][0]["evaluate"]
    result = app_store.results.of(job)[0]
    said = {
        "code": "zero_gradient",
        "severity": "caution",
        "message": "the gradient <was> zero",
        "evidence": {},
    }
    app_store.results.save(job, 0, {**result, "warnings": [said]})
    text = page(api, f"/studies/{study['id']}").split("Warnings of the runs")[1].split("</ul>")[0]
    assert "<code>zero_gradient</code></a> the gradient &lt;was&gt; zero" in text
    assert "(runs: 1); the message is of the first run" in text


def test_one_seed_compares_weights_only(api: httpx.Client, worker: Any) -> None:
    study = posted(api, seeds=[0])
    finish(api, worker, study)
    text = page(api, f"/studies/{study['id']}")
    assert "What it cannot say" in text
    assert "weights, not of methods" in text
    assert 'class="verdict' not in text
    assert "weights only" in text


def test_the_queries_of_a_page_do_not_grow_with_the_runs(
    api: httpx.Client, worker: Any, app_store: Store
) -> None:
    statements: list[str] = []
    event.listen(
        app_store._database.engine, "before_cursor_execute", lambda *call: statements.append(call[2])
    )
    counts = []
    for seeds in (1, 4):
        study = posted(api, seeds=seeds, name=f"of {seeds}")
        finish(api, worker, study)
        statements.clear()
        page(api, f"/studies/{study['id']}")
        counts.append(sum("SELECT" in statement for statement in statements))
    assert counts[0] == counts[1], counts


def test_results_of_an_ended_study_are_made_once(
    api: httpx.Client, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = posted(api, seeds=1)
    finish(api, worker, study)
    text = page(api, f"/studies/{study['id']}")
    monkeypatch.setattr(study_results, "_measured", None)
    assert page(api, f"/studies/{study['id']}") == text
    sent(api, f"/studies/{study['id']}/delete")
    page(api, f"/studies/{study['id']}", 404)


def test_a_study_is_extended_canceled_resumed_and_deleted_by_forms(api: httpx.Client) -> None:
    study = posted(api)
    path = f"/studies/{study['id']}"
    assert 'name="seeds" required value="2 3 4"' in page(api, path)
    assert sent(api, f"{path}/seeds", seeds="3, 4 5").headers["location"] == path
    assert "the study has these seeds" in sent(api, f"{path}/seeds", 422, seeds="3 4").text
    assert api.get(f"/api/v1{path}").json()["seeds"] == [0, 1, 3, 4, 5]
    assert 'value="6 7 8"' in page(api, path)
    sent(api, f"{path}/cancel")
    assert api.get(f"/api/v1{path}").json()["state"] == "canceled"
    assert "Resume" in page(api, path)
    sent(api, f"{path}/retry")
    assert api.get(f"/api/v1{path}").json()["state"] == "queued"
    assert "state" in sent(api, f"{path}/delete", 409).text
    sent(api, f"{path}/cancel")
    assert sent(api, f"{path}/delete").headers["location"] == "/studies"


@pytest.mark.parametrize("seeds", ["", "x", "1.5", "-1", "9" * 30, "1;2"])
def test_wrong_seeds_come_back_in_their_form(api: httpx.Client, seeds: str) -> None:
    study = posted(api)
    text = sent(api, f"/studies/{study['id']}/seeds", 422, seeds=seeds).text
    assert "<code>seeds</code>" in text
    assert f'<input name="seeds" required value="{seeds or "2 3 4"}"' in text
    assert 'aria-invalid="true" aria-describedby="problems"' in text
    assert ">Power and notes<" not in text, "the page of the study itself, which has no results yet"
    assert f'<dd class="id">{study["id"]}</dd>' in text
    assert api.get(study["links"]["self"]).json()["seeds"] == [0, 1]


def test_names_are_escaped(api: httpx.Client) -> None:
    hostile = "<script>alert(1)</script>"
    arms = [{"name": hostile, "model": {"name": "tiny_vit"}}]
    study = posted(api, name=hostile, tags=["<b>"], arms=arms)
    for path in ("/studies", f"/studies/{study['id']}"):
        text = page(api, path)
        assert hostile not in text
        assert "<b>" not in text.replace("<b>A</b>", "")


def test_a_tenant_sees_its_own(
    api: httpx.Client, serve: Callable[..., Any], settings: Any, app_store: Store
) -> None:
    study = posted(api)
    key = app_store.keys.create("other", ["submit"], tenant="other")[1]
    headers = {**PAGE, "Authorization": f"Bearer {key}"}
    with serve(settings.model_copy(update={"require_keys": True}), app_store) as other:
        assert study["id"] not in other.get("/studies", headers=headers).text
        assert other.get(f"/studies/{study['id']}", headers=headers).status_code == 404
        for action in ("cancel", "retry", "seeds", "delete"):
            answer = other.post(f"/studies/{study['id']}/{action}", data={"seeds": "9"}, headers=headers)
            assert answer.status_code == 404
    assert api.get(study["links"]["self"]).json()["state"] == "queued"
