"""Limits of tenants over HTTP: 429 with its headers, and what a tenant sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from assay.service.contract.limits import TenantSettings
from assay.service.settings import Settings
from assay.service.store.artifacts import UPLOAD
from assay.service.store.clock import now
from assay.service.store.store import Store
from assay.service.store.tenant_tables import reservations
from tests.support.jobs import claim
from tests.support.tensors import tensor_file

JOBS, QUOTA, CHECKPOINTS = (f"/api/v1/{name}" for name in ("jobs", "quota", "checkpoints"))
FILE = tensor_file()
DEAD = "host:boot:1:2:0"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True, "max_queued_jobs": 3, "max_uploads": 2})


@pytest.fixture
def key(app_store: Store) -> Callable[..., dict[str, str]]:
    def key(tenant: str, scope: Any = "submit") -> dict[str, str]:
        return {"Authorization": f"Bearer {app_store.keys.create(scope, [scope], tenant=tenant)[1]}"}

    return key


def upload(api: httpx.Client, name: str, headers: dict[str, str], content: Any = FILE) -> httpx.Response:
    params = {"name": name, "model": "tiny_vit"}
    return api.post(CHECKPOINTS, params=params, content=content, headers=headers)


def over(answer: httpx.Response, name: str) -> None:
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "too_many_requests"), answer.text
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["RateLimit-Policy"].startswith(f'"{name}";q=')
    assert answer.headers["RateLimit"].startswith(f'"{name}";r=')


def test_queued_jobs_are_limited_for_each_tenant(api: httpx.Client, key: Any, train_body: Any) -> None:
    alice, bob = key("alice"), key("bob")
    made = [api.post(JOBS, json=train_body(), headers=alice) for _ in range(4)]
    assert [answer.status_code for answer in made] == [201, 201, 201, 429]
    over(made[3], "queued-jobs")
    assert "3 jobs are queued, at most 3 may be" in made[3].json()["error"]["message"]
    assert made[3].headers["RateLimit"] == '"queued-jobs";r=0;t=30'
    assert api.post(JOBS, json=train_body(), headers=bob).status_code == 201
    first = made[0].json()["id"]
    assert api.post(f"{JOBS}/{first}/cancel", headers=alice).status_code == 202
    assert api.post(JOBS, json=train_body(), headers=alice).status_code == 201
    over(api.post(f"{JOBS}/{first}/retry", headers=alice), "queued-jobs")


def test_the_same_submission_again_is_answered_at_the_limit(
    api: httpx.Client, key: Any, train_body: Any
) -> None:
    headers = key("alice") | {"Idempotency-Key": "once"}
    assert api.post(JOBS, json=train_body(), headers=headers).status_code == 201
    for _ in range(2):
        api.post(JOBS, json=train_body(), headers=key("alice"))
    assert api.post(JOBS, json=train_body(), headers=headers).status_code == 200


def test_many_submissions_at_once_do_not_pass_the_limit(
    api: httpx.Client, app_store: Store, key: Any, train_body: Any
) -> None:
    headers = key("alice")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.post(JOBS, json=train_body(), headers=headers), range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [429] * 5


def test_a_tenant_sees_its_own_limits_only(api: httpx.Client, key: Any, train_body: Any) -> None:
    api.post(JOBS, json=train_body(), headers=key("alice"))
    upload(api, "a", key("alice"))
    found = api.get(QUOTA, headers=key("alice")).json()
    assert (found["tenant"], found["weight"], found["delayed_by"]) == ("alice", 1.0, [])
    # The upload's check is queued too, for workers of its own.
    assert found["limits"]["queued_jobs"] == {"limit": 3, "used": 2, "left": 1, "resets_at": None}
    assert found["limits"]["running_shards"] == {"limit": None, "used": 0, "left": None, "resets_at": None}
    assert found["limits"]["gpu_seconds"]["resets_at"].endswith("T00:00:00.000Z")
    assert found["limits"]["stored_bytes"]["used"] == len(FILE)
    assert found["limits"]["checkpoints"] == {"limit": 200, "used": 1, "left": 199, "resets_at": None}
    assert [(one["device"], one["queued"], one["share"]) for one in found["queue"]] == [
        ("cpu", 1, 1.0),
        ("cuda", 1, 1.0),
    ]
    other = api.get(QUOTA, headers=key("bob")).json()
    assert other["limits"]["queued_jobs"]["used"] == other["limits"]["stored_bytes"]["used"] == 0
    assert other["queue"][0]["share"] == 0.5
    assert "alice" not in str(other)
    assert api.get(QUOTA, params={"tenant": "alice"}, headers=key("bob")).status_code == 422


def test_without_keys_all_are_one_tenant(settings: Settings, app_store: Store, serve: Any) -> None:
    with serve(settings.model_copy(update={"require_keys": False}), app_store) as api:
        assert api.get(QUOTA).json()["tenant"] == ""


def test_a_queued_job_says_which_limit_it_waits_for(
    api: httpx.Client, app_store: Store, key: Any, train_body: Any
) -> None:
    alice = key("alice")
    app_store.allotments.set("alice", TenantSettings(running_shards=1))
    app_store.workers.beat("w", "box", ["cpu"], 1)
    made = [api.post(JOBS, json=train_body(), headers=alice).json()["id"] for _ in range(2)]
    claim(app_store)
    app_store.allotments._lately.clear()
    job = api.get(f"{JOBS}/{made[1]}", headers=alice).json()
    assert (job["state"], job["queue_position"]) == ("queued", 1)
    assert job["message"] == "waits: the tenant has reached its limit of running_shards"
    assert api.get(QUOTA, headers=alice).json()["delayed_by"] == ["running_shards"]
    assert api.get(f"{JOBS}/{made[1]}", headers=key("ops", "admin")).json()["message"] == job["message"]


def reserve(store: Store, upload_id: str, size: int, tenant: str = "alice", owner: str = "") -> None:
    with store._database.writing() as connection:
        values = {"id": upload_id, "tenant": tenant, "owner": owner or store.uploads._owner, "size": size}
        connection.execute(reservations.insert().values(**values, created_at=now(), seen_at=now()))


def test_uploads_in_flight_are_limited(api: httpx.Client, app_store: Store, key: Any) -> None:
    alice = key("alice")
    for name in ("x", "y"):
        reserve(app_store, name, 10)
    over(upload(api, "a", alice), "uploads")
    assert upload(api, "a", key("bob")).status_code == 202
    app_store.uploads.release("x", tenant="alice")
    assert upload(api, "a", alice).status_code == 202
    assert api.get(QUOTA, headers=alice).json()["limits"]["uploads"]["used"] == 1


def test_two_uploads_at_once_never_use_the_same_room(
    settings: Settings, app_store: Store, serve: Any, key: Any
) -> None:
    """Room for one and a half: the second is refused while the first is on its way, before its first byte."""
    tight = settings.model_copy(update={"max_checkpoints_bytes": len(FILE) * 3 // 2, "max_uploads": 8})
    headers = key("alice") | {"Content-Length": str(len(FILE))}
    with serve(tight, app_store) as api:
        reserve(app_store, "first", len(FILE))
        second = upload(api, "b", headers)
        over(second, "checkpoint-bytes")
        app_store.uploads.release("first", tenant="alice")
        assert upload(api, "b", headers).status_code == 202
        # What is stored, and not on its way, is the contract's 413.
        assert upload(api, "c", headers).status_code == 413


def test_races_of_uploads_leave_no_more_than_fits(
    settings: Settings, app_store: Store, serve: Any, key: Any
) -> None:
    tight = settings.model_copy(update={"max_checkpoints": 3, "max_uploads": 0})
    headers = key("alice")
    with serve(tight, app_store) as api, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: upload(api, f"n{number}", headers), range(8)))
        assert {answer.status_code for answer in answers} <= {202, 409, 429}
        assert len(api.get(CHECKPOINTS, headers=headers).json()["items"]) <= 3
        assert api.get(QUOTA, headers=headers).json()["limits"]["uploads"]["used"] == 0


def test_a_failed_upload_gives_its_room_back(api: httpx.Client, app_store: Store, key: Any) -> None:
    def broken() -> Iterator[bytes]:
        yield FILE[:50]
        yield b"x" * 100

    for _ in range(4):
        assert upload(api, "a", key("alice"), broken()).status_code == 422
    assert app_store.uploads.sweep(-1) == []


def test_the_room_of_a_dead_process_is_free_at_once_and_its_file_is_found(
    api: httpx.Client, app_store: Store, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.service.store.fleet.lease_owner.is_dead", lambda owner: owner == DEAD)
    for name in ("x", "y"):
        reserve(app_store, name, 10, owner=DEAD)
    assert upload(api, "a", key("alice")).status_code == 202
    assert sorted(app_store.uploads.sweep(60)) == ["x", "y"]


def test_an_upload_without_a_byte_for_long_loses_its_room(app_store: Store, key: Any) -> None:
    reserve(app_store, "x", 10)
    with app_store._database.writing() as connection:
        connection.execute(update(reservations).values(seen_at=reservations.c.seen_at - 61))
    assert app_store.uploads.sweep(62) == []
    assert app_store.uploads.sweep(60) == ["x"]


def test_stored_bytes_are_limited_for_uploads_and_jobs(
    settings: Settings, app_store: Store, serve: Any, key: Any, train_body: Any
) -> None:
    headers = key("alice")
    full = settings.model_copy(update={"max_stored_bytes": len(FILE) + 5, "max_queued_jobs": 0})
    with serve(full, app_store) as api:
        assert upload(api, "a", headers).status_code == 202
        over(upload(api, "b", headers), "stored-bytes")
        job = api.post(JOBS, json=train_body(), headers=headers)
        assert job.status_code == 201
        app_store.artifacts.add(job.json()["id"], "x.csv", "x", 5, "s", "text/csv")
        over(api.post(JOBS, json=train_body(), headers=headers), "stored-bytes")
        assert api.delete(f"{CHECKPOINTS}/a", headers=headers).status_code in (204, 409)


def test_a_file_of_undeclared_size_reserves_as_it_comes(
    api: httpx.Client, app_store: Store, settings: Settings, key: Any
) -> None:
    """Its room counts while it is on its way, and is used up by the checkpoint."""
    seen: list[int] = []
    reserve_more = app_store.uploads.reserve

    def noted(upload_id: str, name: str, size: int, **options: Any) -> int:
        seen.append(size)
        return reserve_more(upload_id, name, size, **options)

    def content() -> Iterator[bytes]:
        yield from (FILE[:10], FILE[10:])

    app_store.uploads.reserve = noted  # type: ignore[method-assign]
    assert upload(api, "a", key("alice"), content()).status_code == 202
    assert seen[0] == 0
    assert seen[1] >= 10
    assert not list(settings.artifacts.glob(f"{UPLOAD}*"))
    assert app_store.uploads.sweep(-1) == []
