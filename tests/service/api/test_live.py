"""Contribution of Redis to the answers of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from assay.service.store.live import Live
from tests.support.servers import PrivateRedis

JOBS = "/api/v1/jobs"


@pytest.fixture(scope="module")
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


@pytest.fixture
def live(redis: PrivateRedis, transport: Any) -> Live:
    """The application's own, which ends with it."""
    opened = Live(redis.url, away_seconds=0)
    transport.app.state.live = opened
    return opened


@pytest.fixture
def job_id(api: httpx.Client, evaluate_body: Callable[..., dict[str, Any]], worker: Any) -> str:
    """A job with two shards of eight examples."""
    posted = str(api.post(JOBS, json=evaluate_body()).json()["id"])
    worker.plan(posted, n=8)
    return posted


def progress(api: httpx.Client, job_id: str) -> dict[str, Any]:
    answer = api.get(f"{JOBS}/{job_id}")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()["progress"]
    return found


def test_a_jobs_progress_has_what_redis_knows_and_lists_have_the_database(
    api: httpx.Client, live: Live, job_id: str, worker: Any
) -> None:
    worker.store.workers.beat("worker", "host", ["cpu"], 1)
    claim = worker.claim(job_id)
    with worker.store._database.writing() as connection:
        # Both can happen within a tick of the clock, in which nothing has been measured.
        connection.exec_driver_sql("UPDATE jobs SET paced_at = paced_at - 100")
        connection.exec_driver_sql("UPDATE shards SET progressed_at = progressed_at - 100")
    worker.store.shards.progress(claim, 2, 8)
    eta = progress(api, job_id)["eta_seconds"]
    live.report(claim, 6)
    found = progress(api, job_id)
    assert (found["done"], found["total"]) == (6, 16)
    assert found["eta_seconds"] < eta
    assert api.get(JOBS).json()["items"][0]["progress"]["done"] == 2


def test_progress_never_falls_back_when_a_shard_ends(
    api: httpx.Client, live: Live, job_id: str, worker: Any
) -> None:
    claim = worker.claim(job_id)
    live.report(claim, 7)
    assert progress(api, job_id)["done"] == 7
    worker.store.shards.progress(claim, 8, 8)
    assert progress(api, job_id)["done"] == 8
    other = worker.claim(job_id)
    live.report(other, 3)
    assert progress(api, job_id)["done"] == 11


@pytest.mark.costly
@pytest.mark.parametrize("how", ["emptied", "stopped", "frozen"])
def test_without_redis_the_database_answers(
    api: httpx.Client, live: Live, job_id: str, worker: Any, redis: PrivateRedis, how: str
) -> None:
    claim = worker.claim(job_id)
    worker.store.shards.progress(claim, 2, 8)
    live.report(claim, 6)
    {"emptied": redis.kill, "stopped": redis.stop, "frozen": redis.freeze}[how]()
    if how == "emptied":
        redis.start()
    assert progress(api, job_id)["done"] == 2
    canceled = api.post(f"{JOBS}/{job_id}/cancel")
    assert (canceled.status_code, canceled.json()["state"]) == (202, "canceling")
    assert worker.store.shards.renew(claim, 60) == "cancel"
    {"emptied": lambda: None, "stopped": redis.start, "frozen": redis.thaw}[how]()


def test_a_cancel_is_hinted_at_after_it_is_in_the_database(
    api: httpx.Client, live: Live, job_id: str, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = worker.claim(job_id)
    seen = []
    monkeypatch.setattr(
        live, "cancel", lambda row: seen.append((row.id, worker.store.jobs.get(row.id).state))
    )
    api.post(f"{JOBS}/{job_id}/cancel")
    assert seen == [(job_id, "canceling")]
    monkeypatch.undo()
    assert not live.canceled(claim)
    api.post(f"{JOBS}/{job_id}/cancel")
    assert live.canceled(claim), "asking again repeats the hint"


def test_a_cancel_that_is_refused_hints_at_nothing(
    api: httpx.Client, live: Live, job_id: str, worker: Any
) -> None:
    claim = worker.claim(job_id)
    worker.store.jobs.fail(job_id, "by_hand", "for the test")
    assert api.post(f"{JOBS}/{job_id}/cancel").status_code == 409
    assert not live.canceled(claim)
