"""Live states of jobs: how many watchers wait, and what is told of jobs that ended."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from assay.service.dashboard import live
from assay.service.dashboard.live import LiveStates
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def store(app_store: Store) -> TenantStore:
    return TenantStore(app_store, View(None, everything=True))


def test_a_hundred_watchers_take_one_thread_and_one_reading(
    store: TenantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    working, most, readings = 0, 0, 0

    def slow(store: TenantStore, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        nonlocal working, most, readings
        del store
        if not job_ids:
            return {}
        working, readings = working + 1, readings + 1
        most = max(most, working)
        time.sleep(0.05)
        working -= 1
        return {job_id: {"id": job_id} for job_id in job_ids}

    async def watched() -> list[list[dict[str, Any]]]:
        since = time.monotonic()
        return await asyncio.gather(*(states.follow(store, ["a", "b"], since) for _ in range(100)))

    monkeypatch.setattr(live, "_states", slow)
    states = LiveStates()

    async def twice() -> None:
        assert await watched() == [[{"id": "a"}, {"id": "b"}]] * 100
        assert (most, readings) == (1, 1)
        await watched()
        assert readings == 2, "a watcher must not hear of a time before it came"

    asyncio.run(twice())


def test_live_states_of_jobs_end_with_the_jobs(api: httpx.Client, train_body: Make) -> None:
    job_id = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    api.post(f"/api/v1/jobs/{job_id}/cancel")
    answer = api.get(f"/live?jobs={job_id}")
    assert answer.headers["content-type"].startswith("text/event-stream")
    data = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    state = json.loads(data[0])[0]
    assert (state["id"], state["state"], state["ended"]) == (job_id, "canceled", True)
    assert state["speed"] == ""
    assert answer.text.rstrip().endswith("data: {}")


def test_live_states_of_unknown_or_too_many_jobs_are_refused(api: httpx.Client) -> None:
    assert api.get(f"/live?jobs={'0' * 26}").status_code == 404
    assert api.get("/live?jobs=" + ",".join(f"{i:026d}" for i in range(51))).status_code == 422
    assert api.get("/live").status_code == 422


def test_a_job_that_was_retried_is_not_told_to_have_ended(
    api: httpx.Client, transport: Any, train_body: Make, app_store: Store
) -> None:
    job_id = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    api.post(f"/api/v1/jobs/{job_id}/cancel")
    states, store = LiveStates(), TenantStore(app_store, View(None, everything=True))
    assert states.of(store, [job_id])[0]["state"] == "canceled"
    api.post(f"/api/v1/jobs/{job_id}/retry")
    assert states.of(store, [job_id])[0]["state"] == "canceled", "the premise: it is remembered for a second"
    assert states.of(store, [job_id], since=time.monotonic())[0]["state"] == "queued"
