"""Results that pages keep in memory, and what a page does before its first request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from assay.service.contract.errors import NotFound
from assay.service.contract.states import JobState
from assay.service.dashboard import frame, job_results, live
from assay.service.dashboard.job_results import KeptResults
from assay.service.dashboard.live import LiveStates
from assay.service.store.rows import JobRow
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from tests.service.conftest import CATALOG
from tests.service.dashboard.test_job import evaluation, results, submitted

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def store(app_store: Store) -> TenantStore:
    return TenantStore(app_store, View(None, everything=True))


@pytest.fixture
def job(api: httpx.Client, store: TenantStore, train_body: Make) -> JobRow:
    row = store.jobs.get(submitted(api, train_body()))
    return replace(row, state=JobState.SUCCEEDED, finished_at=time.time())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the jobs whose results were read from the store; each has two evaluations of one metric."""
    read: list[str] = []

    def counted(store: TenantStore, job: JobRow, catalog: Any) -> Any:
        del store, catalog
        read.append(job.id)
        return results(evaluation(), evaluation("fgsm"))

    monkeypatch.setattr(job_results, "finished_results", counted)
    return read


def test_an_ended_job_is_read_once_and_a_retried_one_again(
    store: TenantStore, job: JobRow, reads: list[str]
) -> None:
    kept = KeptResults()
    first = kept.of(store, job, CATALOG)
    assert kept.of(store, job, CATALOG) is first
    assert len(first.shown.evaluations) == 2
    assert len(reads) == 1
    for other in (
        replace(job, attempt=2),
        replace(job, finished_at=job.created_at + 99),
        replace(job, tenant="another"),
    ):
        assert kept.of(store, other, CATALOG) is not first


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.CANCELED, JobState.FAILED])
def test_results_that_may_still_come_are_not_kept(
    store: TenantStore, job: JobRow, reads: list[str], state: JobState
) -> None:
    kept = KeptResults()
    for _ in range(2):
        kept.of(store, replace(job, state=state), CATALOG)
    assert len(reads) == 2
    if state is not JobState.RUNNING:
        old = replace(job, state=state, finished_at=time.time() - 1000)
        for _ in range(2):
            kept.of(store, old, CATALOG)
        assert len(reads) == 3


def test_what_is_kept_is_bounded(store: TenantStore, job: JobRow, reads: list[str]) -> None:
    kept = KeptResults(max_rows=10)
    jobs = [replace(job, id=f"{job.id[:-1]}{number}") for number in range(3)]
    for one in jobs:
        kept.of(store, one, CATALOG)  # five rows each
    kept.of(store, jobs[2], CATALOG)
    kept.of(store, jobs[1], CATALOG)
    assert len(reads) == 3
    kept.of(store, jobs[0], CATALOG)
    assert len(reads) == 4
    small = KeptResults(max_rows=4)
    for _ in range(2):
        small.of(store, jobs[0], CATALOG)
    assert len(reads) == 6


def test_several_threads_get_the_results_of_their_own_jobs(
    store: TenantStore, job: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(store: TenantStore, job: JobRow, catalog: Any) -> Any:
        del store, catalog
        return results(evaluation(job.id))

    monkeypatch.setattr(job_results, "finished_results", named)
    kept = KeptResults(max_rows=20)
    jobs = [replace(job, id=f"job {number % 12}") for number in range(600)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda one: kept.of(store, one, CATALOG), jobs))
    for one, read in zip(jobs, found, strict=True):
        assert read.results.evaluations[0].name == one.id
    assert sum(size for _, size in kept._known.values()) == kept._rows <= 20


def test_a_kept_job_is_hidden_from_another_tenant_and_gone_when_deleted(
    api: httpx.Client, app_store: Store, worker: Any, evaluate_body: Make
) -> None:
    job_id = submitted(api, evaluate_body())
    worker.run(job_id, [1, 1, 0, 1], [1, 0, 0, 1])
    for _ in range(2):
        assert api.get(f"/jobs/{job_id}").status_code == 200
    with pytest.raises(NotFound):
        TenantStore(app_store, View("another", everything=False)).jobs.get(job_id)
    assert api.delete(f"/api/v1/jobs/{job_id}").status_code < 300
    assert api.get(f"/jobs/{job_id}").status_code == 404


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


def test_templates_are_compiled_before_the_first_page(api: httpx.Client) -> None:
    environment = frame._environment()
    assert environment.cache is not None
    known = {key[1] for key in environment.cache}
    assert known >= set(environment.list_templates())
