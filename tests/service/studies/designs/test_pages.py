"""Pages of designs: registered by a form, looked at, run and deleted."""

from __future__ import annotations

import html
import json
import re

import httpx
import pytest

from assay.service.contract.errors import InvalidSpec
from assay.service.studies.designs import pages
from tests.service.studies.test_pages import page, sent, study_body


def test_a_design_is_registered_run_and_shown(api: httpx.Client) -> None:
    assert "No designs yet." in page(api, "/designs")
    assert 'href="/designs"' in page(api, "/studies")
    body = json.dumps(study_body(primary={"evaluation": "clean"}))
    path = sent(api, "/designs", spec=body).headers["location"]
    digest = path.rpartition("/")[2]
    shown = page(api, path)
    assert digest in shown
    assert "registered before" not in shown
    again = sent(api, "/designs", spec=body).headers["location"]
    assert "This design was registered before." in page(api, again)
    assert "wide against narrow in the first metric of clean: difference" in shown
    assert "\n  &#34;adjust&#34;: &#34;holm&#34;," in shown
    assert f"<code>assay studies run {digest}</code>" in shown
    elsewhere = api.get(path, headers={"accept": "text/html", "host": "localhost:8051"}).text
    assert f"assay studies run --url http://localhost:8051 {digest}" in elsewhere
    assert path in page(api, "/designs")
    study = sent(api, f"{path}/studies").headers["location"]
    text = page(api, study)
    assert f'<a href="{path}">Design</a> fixed before the first run: registered at ' in text
    assert study.rpartition("/")[2] in page(api, path)
    assert "Delete the design" not in page(api, path)


def test_a_design_has_its_jobs_and_cost_as_far_as_they_are_known(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sent(api, "/designs", spec=json.dumps(study_body(name=" "))).headers["location"]
    shown = page(api, path)
    assert f"<title>Design {path.rpartition(':')[2][:12]} · Assay</title>" in shown
    assert "<dd>8: 4 trainings, 4 evaluations</dd>" in shown
    assert re.search(r"<dt>Cost</dt><dd>about [0-9].* of computing", shown)

    def gone(*_: object) -> None:
        raise InvalidSpec("the weights are gone")

    monkeypatch.setattr(pages, "checked_study", gone)
    assert "<dt>Cost</dt><dd>unknown: the weights are gone</dd>" in page(api, path)
    monkeypatch.setattr(pages, "MAX_PLANNED", 1)
    assert "<dt>Cost</dt><dd>unknown: too many evaluations for a page" in page(api, path)


def test_a_new_study_begins_with_an_example(api: httpx.Client) -> None:
    text = page(api, "/designs").partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
    operation = api.get("/openapi.json").json()["paths"]["/api/v1/studies"]["post"]
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    assert json.loads(html.unescape(text)) in [one["value"] for one in examples.values()]
    assert 'href="/designs#new"' in page(api, "/studies")


def test_a_design_without_studies_is_deleted(api: httpx.Client) -> None:
    path = sent(api, "/designs", spec=json.dumps(study_body())).headers["location"]
    assert "Delete the design" in page(api, path)
    assert sent(api, f"{path}/delete").headers["location"] == "/designs"
    page(api, path, 404)


def test_a_wrong_design_comes_back_in_its_form_with_every_fault(api: httpx.Client) -> None:
    body = study_body()
    body["sede"] = body.pop("seeds")
    body["arms"][0]["model"]["name"] = "vitt"
    text = json.dumps(body)
    answer = sent(api, "/designs", 422, spec=text)
    said = " ".join(html.unescape(re.sub(r"<[^>]+>", "", answer.text)).split())
    assert "2 problems" in said
    assert "sede: unknown field; given 2; did you mean seeds?" in said
    assert "arms.0.model.name: there is no model 'vitt'" in said
    assert html.escape(text, quote=False)[:40] in answer.text.replace("&#34;", '"'), "the text is kept"
    assert 'id="spec"' in sent(api, "/designs", 400, spec="{").text
