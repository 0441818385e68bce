"""Work is bounded before it is accepted: by its estimate, and by the size of what is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.catalog.parameters import nearest
from assay.service.settings import Settings
from assay.service.store import job_lists
from assay.service.store.rows import OutcomeRow
from assay.service.store.store import Store
from tests.service.conftest import provenance

JOBS = "/api/v1/jobs"
Make = Callable[..., dict[str, Any]]
Serve = Callable[..., Any]


def dry_run(api: httpx.Client, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    answer = api.post(JOBS, params={"dry_run": "true"}, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    estimate: dict[str, Any] = answer.json()["estimate"]
    return estimate


def refused(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 422, answer.text
    (detail,) = answer.json()["error"]["details"]
    found: dict[str, Any] = detail
    return found


def on_cpu(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"execution": {"device": "cpu"}}


def test_a_dry_run_shows_the_estimate_its_source_and_the_limits(
    api: httpx.Client, evaluate_body: Make
) -> None:
    found = dry_run(api, on_cpu(evaluate_body(limit=100)))
    assert found["seconds"] == pytest.approx((100 * 12 + 2 * 100 * 10) / 1e4)
    assert found["seconds_from"].startswith("a guess of 10,000 forward passes a second, until a job of yours")
    assert (found["device"], found["max_seconds"], found["max_examples"]) == ("cpu", 604800.0, 10**9)


def test_a_job_over_the_limit_is_refused_and_not_stored(
    serve: Serve, settings: Settings, app_store: Store, evaluate_body: Make
) -> None:
    tight = settings.model_copy(update={"max_job_seconds": {"cpu": 0.1, "cuda": None}})
    with serve(tight, app_store) as api:
        for params in ({}, {"dry_run": "true"}):
            detail = refused(api.post(JOBS, params=params, json=on_cpu(evaluate_body())))
            assert detail["loc"] == ["evaluations"]
            assert (detail["given"], detail["allowed"]) == ("estimated 1.15 s", "at most 0.1 s on cpu")
        body = on_cpu(evaluate_body(evaluations=[{"name": "clean"}], limit=10))
        assert api.post(JOBS, json=body).status_code == 201
        assert len(api.get(JOBS).json()["items"]) == 1


def finish(store: Store, worker: Any, job_id: str, seconds: float, passes: int = 1000) -> None:
    """Ends a training of so many forward passes in so many seconds."""
    claim = worker.claim(job_id)
    store.shards.finish(claim, OutcomeRow(0, 0, 0, {}, seconds, passes, 0, {}))
    made = provenance() | {"spec": store.jobs.get(job_id).spec, "device": {"type": "cpu"}}
    assert store.jobs.succeed(job_id, made)


def test_the_speed_is_that_of_the_callers_own_finished_jobs_of_the_model(
    serve: Serve, settings: Settings, app_store: Store, worker: Any, train_body: Make, evaluate_body: Make
) -> None:
    keyed = settings.model_copy(update={"require_keys": True})
    alice, bob = (
        f"Bearer {app_store.keys.create(name, ['submit'], tenant=name)[1]}" for name in ("alice", "bob")
    )
    model = {"name": "tiny_vit", "params": {"width": 16}}
    body = on_cpu(evaluate_body(model=model, evaluations=[{"name": "clean"}], limit=100))
    with serve(keyed, app_store) as api:
        for seconds in (50.0, 30.0):
            answer = api.post(JOBS, json=train_body(), headers={"Authorization": alice})
            finish(app_store, worker, answer.json()["id"], seconds)
        found = dry_run(api, body, Authorization=alice)
        assert found["seconds"] == pytest.approx(100 * 30.0 / 1000)
        assert "your last jobs" in found["seconds_from"]
        assert found["seconds_measured"]
        other = body | {"model": {"name": "tiny_vit", "params": {"width": 32}}}
        on_gpu = body | {"execution": {"device": "cuda"}}
        for asked, key in ((other, alice), (on_gpu, alice), (body, bob)):
            guessed = dry_run(api, asked, Authorization=key)
            assert "a guess of" in guessed["seconds_from"]
            assert not guessed["seconds_measured"]


def test_what_attacks_took_is_the_cost_of_the_next_job(
    api: httpx.Client, app_store: Store, worker: Any, evaluate_body: Make
) -> None:
    near, far = ({"name": "pgd", "params": {"epsilon": radius}} for radius in ("2/255", "8/255"))
    clean = {"name": "clean"}

    def measure(evaluations: list[dict[str, Any]], *took: float) -> None:
        job = api.post(JOBS, json=on_cpu(evaluate_body(evaluations=evaluations))).json()["id"]
        worker.plan(job, 100)
        for number, seconds in enumerate(took):
            app_store.shards.finish(worker.claim(job), OutcomeRow(number, 0, 100, {}, seconds, 1000, 0, {}))
        made = provenance() | {"spec": app_store.jobs.get(job).spec, "device": {"type": "cpu"}}
        assert app_store.jobs.succeed(job, made)

    def found(*evaluations: dict[str, Any], limit: int = 100) -> tuple[float, str]:
        said = dry_run(api, on_cpu(evaluate_body(evaluations=[*evaluations], limit=limit)))
        assert said["seconds_measured"]
        return said["seconds"], said["seconds_from"]

    measure([clean], 1.0)
    seconds, source = found(clean, near)
    assert seconds == pytest.approx(1.0 + 100 * (11 + 2 * 10) / 1000)
    said, _, others = source.partition("; ")
    assert said == "1 of 2 evaluations as your last jobs of this model took on cpu"
    assert others.startswith("the others by the fastest of your last jobs")
    measure([clean, near, far], 1.0, 40.0, 5.0)  # Examples leave the attack of the large radius at once.
    seconds, source = found(clean, near, far)
    assert seconds == pytest.approx(46.0)
    assert source == "3 of 3 evaluations as your last jobs of this model took on cpu"
    assert found(far, limit=200)[0] == pytest.approx(10.0)
    steps = {"epsilon": "8/255", "steps": 20}
    twice = found({"name": "pgd", "params": steps})[0]
    assert twice == pytest.approx(2 * 22.5, rel=0.1), "another pgd takes what both took together"


def test_a_speed_of_few_passes_says_so(
    api: httpx.Client, app_store: Store, worker: Any, train_body: Make, evaluate_body: Make
) -> None:
    body = on_cpu(evaluate_body(model={"name": "tiny_vit", "params": {"width": 16}}, limit=100))
    for passes, few in ((8, True), (1000, False)):
        job = api.post(JOBS, json=train_body()).json()["id"]
        finish(app_store, worker, job, 2.0, passes)
        said = dry_run(api, body)["seconds_from"]
        assert ("which made 8 passes, so that its start counts for much" in said) is few


def test_a_job_for_any_device_is_estimated_for_the_workers_online(
    api: httpx.Client, app_store: Store, evaluate_body: Make
) -> None:
    assert dry_run(api, evaluate_body())["device"] == "cuda"
    app_store.workers.gone("nobody")  # empties what is cached
    app_store.workers.beat("one", "box", ["cpu"], 1)
    assert dry_run(api, evaluate_body())["device"] == "cpu"


def test_the_job_shows_its_deadline(api: httpx.Client, worker: Any, evaluate_body: Make) -> None:
    job = api.post(JOBS, json=evaluate_body(timeout_seconds=60)).json()
    assert job["deadline"] is None
    worker.claim(job["id"])
    job = api.get(f"{JOBS}/{job['id']}").json()
    assert job["started_at"] < job["deadline"]


def test_after_a_hundred_problems_the_others_are_counted_only(
    serve: Serve, settings: Settings, evaluate_body: Make
) -> None:
    body = evaluate_body(
        evaluations=[{"name": "pgd", "params": {f"parameter_{i}": 1 for i in range(60_000)}}]
    )
    with serve(settings.model_copy(update={"max_body_bytes": 2**21})) as api:
        answer = api.post(JOBS, json=body)
    error = answer.json()["error"]
    assert len(error["details"]) == 100
    assert "(and at least 59999 more; 99 listed)" in error["message"]
    assert len(answer.content) < 100_000


def test_an_object_of_no_known_kind_is_compared_with_few_names(
    serve: Serve, settings: Settings, evaluate_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def counted(given: object, known: Any, also: Any = None) -> str | None:
        asked.append(given)
        return nearest(given, known, also)

    monkeypatch.setattr("assay.service.catalog.parameters.nearest", counted)
    body = evaluate_body(evaluations=[{f"zzz{i}": 1 for i in range(50_000)}])
    with serve(settings.model_copy(update={"max_body_bytes": 2**20})) as api:
        assert api.post(JOBS, json=body).status_code == 422
    assert len(asked) < 1000


def test_an_answer_shows_little_of_what_was_given(
    serve: Serve, settings: Settings, evaluate_body: Make
) -> None:
    given = [[[["x" * 200] * 20] * 2] * 2] * 2
    body = evaluate_body() | {f"field_{k}": given for k in range(30)}
    with serve(settings.model_copy(update={"max_body_bytes": 2**20})) as api:
        answer = api.post(JOBS, json=body)
    assert len(answer.request.content) > 900_000
    assert len(answer.content) < 50_000
    assert answer.json()["error"]["details"][0]["given"] == ["...", "..."]


def test_a_body_of_many_arrays_is_refused_before_it_is_parsed(serve: Serve, settings: Settings) -> None:
    with serve(settings.model_copy(update={"max_body_bytes": 2**20})) as api:
        raw = b"[" + b"[]," * 300_000 + b"[]]"
        answer = api.post(JOBS, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "allowed: 20000" in answer.json()["error"]["message"]


def test_a_long_query_is_read_once(api: httpx.Client) -> None:
    answer = api.get(f"{JOBS}?" + "&".join(f"a{i}=" for i in range(5000)))
    error = answer.json()["error"]
    assert len(error["details"]) == 100
    assert "at least 4999 more" in error["message"]


def test_a_page_of_long_specs_has_fewer_jobs(
    api: httpx.Client, train_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"job {number}" for number in range(5)]
    for name in names:
        assert api.post(JOBS, json=train_body(name=name)).status_code == 201
    monkeypatch.setattr(job_lists, "MAX_PAGE_CHARACTERS", 1000)
    seen: list[str] = []
    lengths = []
    page: dict[str, Any] = {"next_cursor": ""}
    while page["next_cursor"] is not None:
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
        page = api.get(JOBS, params={"limit": 4, **cursor}).json()
        seen += [job["name"] for job in page["items"]]
        lengths.append(len(page["items"]))
    assert seen == names[::-1]
    assert 1 <= max(lengths) < 4
    monkeypatch.setattr(job_lists, "MAX_PAGE_CHARACTERS", 1)
    assert len(api.get(JOBS).json()["items"]) == 1


def test_a_comparison_that_would_take_minutes_is_refused(
    api: httpx.Client, worker: Any, evaluate_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [api.post(JOBS, json=evaluate_body()).json()["id"] for _ in range(2)]
    for job_id in ids:
        worker.run(job_id, [1, 0, 1, 1], [0, 0, 1, 0])
    path = f"/api/v1/compare?jobs={','.join(ids)}"
    monkeypatch.setattr("assay.service.api.compare.MAX_ROWS", 16)
    assert api.get(path).status_code == 200
    monkeypatch.setattr("assay.service.api.compare.MAX_ROWS", 15)
    assert refused(api.get(path))["allowed"] == "at most 15"
