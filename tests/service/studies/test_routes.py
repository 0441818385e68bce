"""Studies over HTTP: planned, submitted, shared, extended, canceled, resumed, deleted, and their results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.store.audit import AuditFilter
from assay.service.store.store import Store
from assay.service.studies import stored_results as study_results

STUDIES = "/api/v1/studies"
Make = Callable[..., dict[str, Any]]


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
        "evaluations": [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "2/255"}}],
    }
    return spec | changes


def posted(api: httpx.Client, **changes: Any) -> dict[str, Any]:
    answer = api.post(STUDIES, json=study_body(**changes))
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    assert answer.headers["location"] == body["links"]["self"]
    return body


def details(answer: httpx.Response) -> dict[str, dict[str, Any]]:
    assert answer.status_code == 422, answer.text
    return {".".join(map(str, detail["loc"])): detail for detail in answer.json()["error"]["details"]}


def finish(api: httpx.Client, worker: Any, study: dict[str, Any], n: int = 40) -> None:
    """Trains and measures every run; the second arm is better, by chance alone within an arm."""
    for index, arm in enumerate(api.get(study["links"]["self"]).json()["runs"]):
        for run in arm["runs"]:
            if run["train_state"] == "queued":
                worker.train(run["train"])
            if run["evaluate_state"] in ("waiting", "queued"):
                draws = random.Random(f"{index}/{run['seed']}")
                outcomes = [[int(draws.random() < 0.2 + 0.5 * index) for _ in range(n)] for _ in range(2)]
                worker.run(run["evaluate"], *outcomes)


def test_a_study_becomes_a_training_and_an_evaluation_of_each_arm_and_seed(
    api: httpx.Client, bell: Any
) -> None:
    study = posted(api)
    assert (study["state"], study["jobs"]) == ("queued", {"queued": 4, "waiting": 4})
    assert study["progress"] == {"done": 0, "total": 8, "share": 0.0}
    assert [(arm["name"], arm["trained"], len(arm["runs"])) for arm in study["runs"]] == [
        ("narrow", True, 2),
        ("wide", True, 2),
    ]
    run = study["runs"][1]["runs"][1]
    train, evaluate = (api.get(f"/api/v1/jobs/{run[role]}").json() for role in ("train", "evaluate"))
    assert (train["kind"], train["spec"]["seed"], train["study"]) == ("train", 1, study["id"])
    assert train["spec"]["model"]["params"]["width"] == 64
    assert train["name"] == "widths: wide, seed 1, training"
    assert (evaluate["kind"], evaluate["spec"]["seed"], evaluate["study"]) == ("evaluate", 1, study["id"])
    assert evaluate["spec"]["model"]["weights"] == {"job": run["train"]}
    assert evaluate["state"] == "waiting"
    assert evaluate["tags"] == ["s"]
    assert study["spec"]["baseline"] == "narrow"
    assert len(bell.rung) == 1


def test_the_stored_spec_can_be_posted_again(api: httpx.Client) -> None:
    spec = posted(api)["spec"]
    again = api.post(STUDIES, json=spec)
    assert again.status_code == 201
    assert again.json()["spec"] == spec


def test_equal_trainings_are_shared(api: httpx.Client) -> None:
    arms = [
        {"name": name, "model": {"name": "tiny_vit"}, **more}
        for name, more in (
            ("a", {}),
            ("b", {}),
            ("c", {"recipe": {"name": "short", "params": {"epochs": 5}}}),
        )
    ]
    study = posted(api, arms=arms)
    first, second, other = ([run["train"] for run in arm["runs"]] for arm in study["runs"])
    assert first == second
    assert not set(first) & set(other)
    assert [[run["shared"] for run in arm["runs"]] for arm in study["runs"]] == [
        [False, False],
        [True, True],
        [False, False],
    ]
    assert sum(study["jobs"].values()) == 4 + 6
    planned = api.post(STUDIES, params={"dry_run": "true"}, json=study_body(arms=arms)).json()
    assert (planned["jobs"], planned["trainings"], planned["evaluations"]) == (10, 4, 6)


def test_an_arm_with_weights_is_not_trained(api: httpx.Client, worker: Any, train_body: Make) -> None:
    job = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    worker.train(job)
    given = {"name": "given", "model": {"name": "tiny_vit"}, "weights": {"job": job}}
    study = posted(api, arms=[*study_body()["arms"], given])
    arm = study["runs"][2]
    assert arm["trained"] is False
    assert [run["train"] for run in arm["runs"]] == [None, None]
    assert any("one set of weights" in note for note in study["notes"])
    tuned = posted(api, arms=[{**given, "recipe": {"name": "short"}}])
    assert tuned["runs"][0]["trained"] is True
    train = api.get(f"/api/v1/jobs/{tuned['runs'][0]['runs'][0]['train']}").json()
    assert train["spec"]["model"]["weights"] == {"job": job}


def test_a_dry_run_plans_and_costs_and_stores_nothing(api: httpx.Client) -> None:
    answer = api.post(STUDIES, params={"dry_run": "true"}, json=study_body())
    assert answer.status_code == 200
    planned = answer.json()
    assert (planned["jobs"], planned["trainings"], planned["evaluations"]) == (8, 4, 4)
    narrow = planned["arms"][0]
    assert narrow["train"]["examples"] == 2 * 1437
    assert narrow["evaluate"]["examples"] == 720
    each = sum(arm["train_seconds"] or 0 for arm in planned["arms"])
    each += sum(arm["evaluate_seconds"] for arm in planned["arms"])
    assert planned["seconds"] is None or planned["seconds"] == pytest.approx(2 * each)
    assert api.get(STUDIES).json()["items"] == []
    assert api.get("/api/v1/jobs").json()["items"] == []


def test_one_seed_is_told(api: httpx.Client) -> None:
    planned = api.post(STUDIES, params={"dry_run": "true"}, json=study_body(seeds=[7])).json()
    assert "compares" not in planned
    assert any("of weights, not of methods" in note for note in planned["notes"])


def test_errors_of_jobs_are_told_at_the_fields_of_the_study(api: httpx.Client) -> None:
    body = study_body()
    body["arms"][1]["model"]["params"] = {"width": 30}
    body["recipe"] = {"name": "shrot"}
    body["evaluations"].append({"name": "pdg"})
    found = details(api.post(STUDIES, json=body))
    assert set(found) == {"arms.1.model.params", "recipe.name", "evaluations.2.name"}
    assert found["recipe.name"]["nearest"] == "short"
    assert found["evaluations.2.name"]["nearest"] == "pgd"
    assert api.get("/api/v1/jobs").json()["items"] == []


@pytest.mark.parametrize(
    ("changes", "loc", "part"),
    [
        ({"seeds": 0}, "seeds", "1"),
        ({"seeds": []}, "seeds", "1"),
        ({"seeds": 10_000}, "seeds", "500"),
        ({"seeds": list(range(501))}, "seeds", "500"),
        ({"seeds": 400}, "seeds", "1600 jobs"),
        ({"baseline": "wdie"}, "baseline", "no arm"),
        ({"adjust": "bonferroni"}, "adjust", "holm"),
        ({"arms": []}, "arms", "1"),
        ({"kind": "train"}, "kind", "study"),
        ({"recipe": None}, "arms.0.recipe", "required"),
        ({"data": None}, "data", "required"),
        ({"sedes": 3}, "sedes", "unknown"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_studies_are_422(api: httpx.Client, changes: dict[str, Any], loc: str, part: str) -> None:
    found = details(api.post(STUDIES, json=study_body(**changes)))
    assert loc in found
    assert part in found[loc]["message"] + str(found[loc]["allowed"])


def test_duplicate_arms_and_the_nearest_baseline(api: httpx.Client) -> None:
    arms = [dict(arm, name="wide") for arm in study_body()["arms"]]
    assert (
        "arm 0 has this name"
        in details(api.post(STUDIES, json=study_body(arms=arms)))["arms.1.name"]["message"]
    )
    assert details(api.post(STUDIES, json=study_body(baseline="wdie")))["baseline"]["nearest"] == "wide"


def test_a_study_posted_as_a_job_is_told_where_to_go(api: httpx.Client) -> None:
    found = details(api.post("/api/v1/jobs", json=study_body()))
    assert "/api/v1/studies" in found["kind"]["message"]


def test_a_key_makes_one_study(api: httpx.Client) -> None:
    headers = {"Idempotency-Key": "night"}
    first, again = (api.post(STUDIES, json=study_body(), headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = api.post(STUDIES, json=study_body(seeds=3), headers=headers)
    assert (other.status_code, other.json()["error"]["type"]) == (422, "idempotency_mismatch")
    assert len(api.get("/api/v1/jobs").json()["items"]) == 8


def test_results_come_in_parts_and_say_what_is_missing(api: httpx.Client, worker: Any) -> None:
    study = posted(api)
    results = study["links"]["results"]
    early = api.get(results)
    assert (early.status_code, early.json()["error"]["type"]) == (409, "no_results")
    run = study["runs"][0]["runs"][0]
    worker.train(run["train"])
    worker.run(run["evaluate"], [1, 0, 1, 1], [0, 0, 1, 0])
    part = api.get(results).json()
    assert part["complete"] is False
    assert len(part["missing"]) == 3
    assert part["cells"][0]["arms"][0]["mean"] == 0.75
    assert part["cells"][0]["comparisons"][0]["difference"] is None
    finish(api, worker, study)
    whole = api.get(results).json()
    assert (whole["complete"], whole["missing"], whole["tests"]) == (True, [], 2)
    assert api.get(study["links"]["self"]).json()["state"] == "succeeded"


def test_a_run_that_a_second_worker_has_otherwise_is_left_out(api: httpx.Client, worker: Any) -> None:
    study = posted(api)
    first, second = study["runs"][0]["runs"]
    for run in (first, second):
        worker.train(run["train"])
    worker.run(first["evaluate"], [1, 0], [1, 0])
    worker.identity = "planner"
    worker.differ(second["evaluate"], [1, 1])
    results = api.get(study["links"]["results"]).json()
    assert {"arm": "narrow", "seed": 1, "state": "failed"} in results["missing"]
    assert [cell["arms"][0]["mean"] for cell in results["cells"]] == [0.5, 0.5]
    # Resumed, all of it is measured again.
    resumed = api.post(f"{study['links']['self']}/retry")
    assert resumed.status_code == 202, resumed.text
    assert api.get(f"/api/v1/jobs/{second['evaluate']}").json()["state"] == "queued"
    assert worker.store.results.of(second["evaluate"]) == {}


def test_results_compare_the_arms(api: httpx.Client, worker: Any) -> None:
    study = posted(api, seeds=4)
    finish(api, worker, study, n=200)
    found = api.get(study["links"]["results"]).json()
    clean, pgd = found["cells"]
    assert (clean["evaluation"], pgd["evaluation"], pgd["tested"]) == ("clean", "pgd", True)
    (one,) = pgd["comparisons"]
    narrow, wide = pgd["arms"]
    assert one["difference"] == pytest.approx(wide["mean"] - narrow["mean"])
    assert (one["arm"], one["baseline"], one["compares"]) == ("wide", "narrow", "methods")
    assert one["ci_low"] < one["difference"] < one["ci_high"]
    assert one["test"]["name"] == "two_way_t"
    assert one["test"]["p_value"] <= one["test"]["adjusted_p_value"] < 0.01
    assert "4 seeds and 200 examples" in one["power"]["text"]
    assert api.get(study["links"]["results"]).json() == found
    table = api.get(study["links"]["results"], params={"format": "markdown"})
    assert table.headers["content-type"].startswith("text/markdown")
    assert "| pgd 2/255 | top1 |" in table.text
    assert api.get(study["links"]["results"], params={"format": "md"}).text == table.text
    assert "p (two-way t) | p, Holm |" in table.text
    lines = api.get(study["links"]["results"], params={"format": "csv"}).text.splitlines()
    assert len(lines) == 1 + 2 * 2
    assert lines[0].endswith(
        "test,p_value,adjusted_p_value,adjust,resolves,claim,margin,claim_p_value,holds,design,registered_at,fixed"
    )


def test_a_study_answers_its_primary_question(api: httpx.Client, worker: Any) -> None:
    study = posted(api, seeds=4, primary={"evaluation": "pgd"})
    finish(api, worker, study, n=200)
    found = api.get(study["links"]["results"]).json()
    assert found["primary"]["holds"] is True
    assert found["primary"]["fixed_at"] == study["created_at"]
    assert found["tests"] == 1
    page = api.get(f"/studies/{study['id']}").text
    assert "primary question" in page


def test_too_many_examples_are_compared_over_seeds_alone(
    api: httpx.Client, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = posted(api, seeds=3)
    finish(api, worker, study)
    monkeypatch.setattr(study_results, "MAX_ROWS", 479)
    found = api.get(study["links"]["results"]).json()
    assert "480 examples were measured, more than 479" in found["notes"][-1]
    assert {one["test"]["name"] for cell in found["cells"] for one in cell["comparisons"]} == {"paired_t"}


def test_more_seeds_queue_only_new_jobs(api: httpx.Client, worker: Any) -> None:
    study = posted(api)
    finish(api, worker, study)
    answer = api.post(f"{study['links']['self']}/seeds", json={"seeds": [1, 5, 5]})
    assert answer.status_code == 202
    longer = answer.json()
    assert (longer["seeds"], longer["state"]) == ([0, 1, 5], "running")
    assert sum(longer["jobs"].values()) == 12
    assert longer["runs"][0]["runs"][:2] == api.get(study["links"]["self"]).json()["runs"][0]["runs"][:2]
    same = api.post(f"{study['links']['self']}/seeds", json={"seeds": [5]}).json()
    assert same["jobs"] == longer["jobs"]
    finish(api, worker, study)
    found = api.get(study["links"]["results"]).json()
    assert (found["seeds"], found["complete"]) == ([0, 1, 5], True)
    assert details(api.post(f"{study['links']['self']}/seeds", json={"seeds": []}))
    assert (
        "jobs"
        in details(api.post(f"{study['links']['self']}/seeds", json={"seeds": list(range(400))}))["seeds"][
            "message"
        ]
    )


def test_cancel_and_resume(api: httpx.Client, worker: Any) -> None:
    study = posted(api)
    first = study["runs"][0]["runs"][0]
    worker.train(first["train"])
    worker.run(first["evaluate"], [1, 1], [1, 0])
    canceled = api.post(f"{study['links']['self']}/cancel")
    assert canceled.status_code == 202
    assert (canceled.json()["state"], canceled.json()["jobs"]) == (
        "canceled",
        {"canceled": 6, "succeeded": 2},
    )
    assert api.post(f"{study['links']['self']}/cancel").status_code == 409
    resumed = api.post(f"{study['links']['self']}/retry")
    assert resumed.status_code == 202
    assert (resumed.json()["state"], resumed.json()["jobs"]) == (
        "running",
        {"queued": 3, "succeeded": 2, "waiting": 3},
    )
    finish(api, worker, study, n=2)
    assert api.get(study["links"]["self"]).json()["state"] == "succeeded"
    assert api.post(f"{study['links']['self']}/retry").status_code == 409


def test_a_failed_training_is_told_and_resumed(api: httpx.Client, worker: Any) -> None:
    study = posted(api)
    run = study["runs"][1]["runs"][0]
    worker.fail(run["train"])
    failed = api.get(study["links"]["self"]).json()
    assert failed["jobs"]["failed"] == 2
    assert "8 GB were not enough" in failed["message"]
    api.post(f"{study['links']['self']}/retry")
    finish(api, worker, study)
    assert api.get(study["links"]["self"]).json()["state"] == "succeeded"


def test_deleting_it_deletes_its_jobs(api: httpx.Client, worker: Any) -> None:
    study, other = posted(api), posted(api)
    assert api.delete(study["links"]["self"]).status_code == 409
    api.post(f"{study['links']['self']}/cancel")
    assert api.delete(study["links"]["self"]).status_code == 204
    assert api.get(study["links"]["self"]).status_code == 404
    assert {job["study"] for job in api.get("/api/v1/jobs").json()["items"]} == {other["id"]}


def test_a_study_whose_weights_another_job_needs_stays(
    api: httpx.Client, worker: Any, evaluate_body: Make
) -> None:
    study = posted(api)
    finish(api, worker, study)
    train = study["runs"][0]["runs"][0]["train"]
    needing = {"name": "tiny_vit", "weights": {"job": train}}
    job = api.post("/api/v1/jobs", json=evaluate_body(model=needing)).json()["id"]
    refused = api.delete(study["links"]["self"])
    assert refused.status_code == 409
    assert job in refused.json()["error"]["message"]


def test_a_deleted_job_is_told(api: httpx.Client, worker: Any) -> None:
    study = posted(api)
    finish(api, worker, study)
    api.delete(f"/api/v1/jobs/{study['runs'][0]['runs'][1]['evaluate']}")
    found = api.get(study["links"]["self"]).json()
    assert (found["state"], found["jobs"]) == ("failed", {"deleted": 1, "succeeded": 7})
    results = api.get(study["links"]["results"]).json()
    assert results["missing"] == [{"arm": "narrow", "seed": 1, "state": "deleted"}]
    assert results["cells"][0]["comparisons"][0]["seeds"] == [0]
    assert results["cells"][0]["comparisons"][0]["test"] is None
    assert "weights, not methods" in results["cells"][0]["comparisons"][0]["note"]


def test_lists_are_paged(api: httpx.Client) -> None:
    ids = [posted(api, seeds=1)["id"] for _ in range(3)]
    page = api.get(STUDIES, params={"limit": 2}).json()
    assert [one["id"] for one in page["items"]] == ids[:0:-1]
    rest = api.get(STUDIES, params={"limit": 2, "cursor": page["next_cursor"]}).json()
    assert ([one["id"] for one in rest["items"]], rest["next_cursor"]) == (ids[:1], None)


@pytest.mark.parametrize("study_id", ["0" * 26, "x", "a" * 200])
def test_unknown_studies_are_404(api: httpx.Client, study_id: str) -> None:
    for method, path in (
        ("GET", ""),
        ("GET", "/results"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("DELETE", ""),
    ):
        answer = api.request(method, f"{STUDIES}/{study_id}{path}")
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found")


def test_limits_and_audit_are_those_of_jobs(serve: Any, settings: Any, app_store: Store) -> None:
    changed = settings.model_copy(update={"require_keys": True, "max_queued_jobs": 7})
    keys = {
        tenant: {"Authorization": f"Bearer {app_store.keys.create(tenant, ['submit'], tenant=tenant)[1]}"}
        for tenant in ("ann", "bob")
    }
    with serve(changed, app_store) as api:
        refused = api.post(STUDIES, json=study_body(), headers=keys["ann"])
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "too_many_requests")
        assert "needs 8 jobs" in refused.json()["error"]["message"]
        assert api.get("/api/v1/jobs", headers=keys["ann"]).json()["items"] == []
        study = api.post(STUDIES, json=study_body(seeds=1), headers=keys["ann"]).json()
        own = study["links"]["self"]
        calls = [("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("POST", "/retry"), ("DELETE", "")]
        for method, path in calls:
            foreign = api.request(method, own + path, headers=keys["bob"])
            unknown = api.request(method, f"{STUDIES}/{'0' * 26}{path}", headers=keys["bob"])
            assert foreign.status_code == unknown.status_code == 404
            assert foreign.text.replace(study["id"], "0" * 26) == unknown.text
        seeds = api.post(f"{own}/seeds", json={"seeds": [9]}, headers=keys["bob"])
        assert seeds.status_code == 404
        assert api.get(STUDIES, headers=keys["bob"]).json()["items"] == []
        assert len(api.get(STUDIES, headers=keys["ann"]).json()["items"]) == 1
        body = study_body(
            arms=[
                {
                    "name": "a",
                    "model": {"name": "tiny_vit"},
                    "weights": {"job": study["runs"][0]["runs"][0]["train"]},
                }
            ]
        )
        assert "arms.0.weights.job" in details(api.post(STUDIES, json=body, headers=keys["bob"]))
        api.post(f"{own}/cancel", headers=keys["ann"])
    actions = [entry.action for entry in app_store.audit.page(AuditFilter(tenant="ann"))[0]][::-1]
    assert actions == [*["job.submit"] * 4, "study.submit", *["job.cancel"] * 4, "study.cancel"]
