"""Designs over HTTP: registered without a job, posted later by digest or by file, told in every form."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import httpx

from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.service.studies.test_routes import STUDIES, details, finish, posted, study_body

DESIGNS = "/api/v1/designs"


def registered(api: httpx.Client, status: int = 201, **changes: Any) -> dict[str, Any]:
    answer = api.post(DESIGNS, json=study_body(**changes))
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert answer.headers["location"] == body["links"]["self"]
    return body


def test_it_starts_nothing_and_anyone_can_check_its_digest(api: httpx.Client) -> None:
    design = registered(api)
    assert api.get("/api/v1/jobs").json()["items"] == []
    assert registered(api, 200, tags=["other"]) == design
    assert (design["arms"], design["seeds"], design["studies"]) == (["narrow", "wide"], [0, 1], [])
    raw = api.get(design["links"]["canonical"]).content
    assert hashlib.sha256(raw).hexdigest() == design["digest"]
    assert registered(api, 200, **json.loads(raw))["digest"] == design["digest"]
    listed = api.get(DESIGNS).json()["items"]
    assert [one["digest"] for one in listed] == [design["digest"]]
    assert api.get(f"{DESIGNS}/{design['digest']}").json() == design
    assert api.get(f"{DESIGNS}/sha256:{'0' * 64}").status_code == 404
    assert "arms" in details(api.post(DESIGNS, json={"kind": "study", "seeds": 1}))


def test_a_study_is_posted_by_digest_or_by_file(api: httpx.Client) -> None:
    design = registered(api)
    by_digest = api.post(design["links"]["studies"], headers={"Idempotency-Key": "k"})
    assert by_digest.status_code == 201
    again = api.post(design["links"]["studies"], headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, by_digest.json()["id"])
    by_file = posted(api, name="file")
    for number, study in enumerate((by_digest.json(), by_file), 1):
        fixing = study["fixing"]
        assert (fixing["design"], fixing["registered_at"]) == (design["digest"], design["registered_at"])
        assert (fixing["fixed"], fixing["number"]) == ("before", number)
    assert by_digest.json()["spec"]["name"] == "widths"
    assert api.get(design["links"]["self"]).json()["studies"] == [by_digest.json()["id"], by_file["id"]]
    assert posted(api, seeds=3)["fixing"]["registered_at"] is None
    assert api.delete(design["links"]["self"]).status_code == 409


def test_a_study_that_is_not_the_design_is_refused(api: httpx.Client) -> None:
    digest = registered(api)["digest"]
    changed = study_body(recipe={"name": "short", "params": {"epochs": 3}})
    for dry_run in ("true", "false"):
        answer = api.post(STUDIES, params={"design": digest, "dry_run": dry_run}, json=changed)
        told = details(answer)["arms.0.recipe.params.epochs"]
        assert (told["given"], told["allowed"]) == (3, 2)
    assert api.post(STUDIES, params={"design": digest}, json=study_body()).status_code == 201
    unknown = api.post(STUDIES, params={"design": "f" * 64}, json=study_body())
    assert unknown.status_code == 404
    assert api.post(STUDIES, params={"design": "short"}, json=study_body()).status_code == 422


def test_every_form_of_the_results_names_it(api: httpx.Client, worker: Any) -> None:
    design = registered(api, primary={"evaluation": "clean"})
    study = api.post(design["links"]["studies"]).json()
    finish(api, worker, study)
    results = study["links"]["results"]
    found = api.get(results).json()
    assert found["fixing"]["fixed"] == "before"
    assert found["primary"]["fixed_at"] == found["fixing"]["registered_at"] == design["registered_at"]
    time = design["registered_at"][:19].replace("T", " ")
    told = f"fixed before the first run: registered at {time} UTC as sha256:{design['digest']}"
    assert found["fixing"]["text"] == told
    assert f"- design {told}" in api.get(results, params={"format": "md"}).text.replace("\\", "")
    head, first, *_ = api.get(results, params={"format": "csv"}).text.splitlines()
    assert head.endswith(",design,registered_at,fixed")
    assert first.endswith(f",{design['digest']},{design['registered_at']},before")
    run = study["runs"][0]["runs"][0]
    reference = {
        "study": study["id"],
        "sha256": design["digest"],
        "registered_at": design["registered_at"],
    }
    assert api.get(f"/api/v1/jobs/{run['evaluate']}/results").json()["provenance"]["design"] == reference
    envelope = api.get(f"/api/v1/jobs/{run['evaluate']}/signature").json()
    signed = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["results"]
    assert signed["provenance"]["design"] == reference
    report = api.get("/api/v1/report", params={"jobs": run["evaluate"]}).text
    assert design["digest"] in report


def test_results_of_other_jobs_are_signed_as_before(api: httpx.Client, worker: Any) -> None:
    study = posted(api)
    finish(api, worker, study)
    job = study["runs"][0]["runs"][0]["evaluate"]
    assert api.get(f"/api/v1/jobs/{job}/results").json()["provenance"]["design"] is None
    envelope = api.get(f"/api/v1/jobs/{job}/signature").json()
    signed = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["results"]
    assert "design" not in signed["provenance"]


def test_given_weights_are_earlier_runs(api: httpx.Client, worker: Any, train_body: Any) -> None:
    """Their training had begun; a design registered before that training is before."""
    job = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    given = {"name": "given", "model": {"name": "tiny_vit"}, "weights": {"job": job}}
    arms = [*study_body()["arms"], given]
    early = registered(api, arms=arms)
    worker.train(job)
    assert api.post(early["links"]["studies"]).json()["fixing"]["fixed"] == "before"
    fixing = posted(api, arms=arms, seeds=3)["fixing"]
    assert fixing["fixed"] == "after"
    assert f"training of the weights of arm 'given' (job {job}, " in fixing["reasons"][0]


def test_tenants_are_isolated(serve: Any, settings: Settings, app_store: Store) -> None:
    keys = {
        name: {"Authorization": f"Bearer {app_store.keys.create(name, [scope], tenant=tenant)[1]}"}
        for name, scope, tenant in (
            ("ann", "submit", "ann"),
            ("bob", "submit", "bob"),
            ("eve", "read", "ann"),
        )
    }
    with serve(settings.model_copy(update={"require_keys": True}), app_store) as api:
        assert api.post(DESIGNS, json=study_body(), headers=keys["eve"]).status_code == 403
        design = api.post(DESIGNS, json=study_body(), headers=keys["ann"]).json()
        own = design["links"]["self"]
        for method, path in (("GET", ""), ("POST", "/studies"), ("DELETE", "")):
            assert api.request(method, own + path, headers=keys["bob"]).status_code == 404
        assert api.get(DESIGNS, headers=keys["bob"]).json()["items"] == []
        assert api.get(own, headers=keys["eve"]).json() == design
        assert api.delete(own, headers=keys["eve"]).status_code == 403
        assert (
            api.post(STUDIES, json=study_body(), headers=keys["bob"]).json()["fixing"]["registered_at"]
            is None
        )
        assert api.delete(own, headers=keys["ann"]).status_code == 204
