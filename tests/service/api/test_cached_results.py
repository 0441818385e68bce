"""Results that do not change any more are read once, and stay hidden from other tenants."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from assay.service.api import results as api_results
from assay.service.api.results import finished_results
from assay.service.contract.errors import NotFound
from assay.service.contract.states import JobState
from assay.service.store.rows import JobRow
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from tests.service.conftest import CATALOG
from tests.service.dashboard.test_job import submitted
from tests.service.dashboard.test_result_rows import evaluation, results

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
    """Ids of the jobs whose results were read from the store."""
    read: list[str] = []

    def counted(store: TenantStore, job: JobRow, catalog: Any) -> Any:
        del store, catalog
        read.append(job.id)
        return results(evaluation(job.id), evaluation("fgsm"))

    monkeypatch.setattr(api_results, "_read", counted)
    return read


def test_an_ended_job_is_read_once_and_a_retried_one_again(
    store: TenantStore, job: JobRow, reads: list[str]
) -> None:
    first = finished_results(store, job, CATALOG)
    assert finished_results(store, job, CATALOG) is first
    assert len(reads) == 1
    for other in (replace(job, attempt=2), replace(job, finished_at=job.created_at + 99)):
        assert finished_results(store, other, CATALOG) is not first


@pytest.mark.parametrize("step", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.CANCELED, JobState.FAILED])
def test_results_that_may_still_come_are_not_kept(
    store: TenantStore,
    job: JobRow,
    reads: list[str],
    state: JobState,
    step: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ages are by the database's clock, where this process's own has been set an hour ahead or back."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + step)
    for _ in range(2):
        finished_results(store, replace(job, state=state), CATALOG)
    assert len(reads) == 2
    if state is not JobState.RUNNING:
        old = replace(job, state=state, finished_at=right() - 1000)
        for _ in range(2):
            finished_results(store, old, CATALOG)
        assert len(reads) == 3


def test_threads_get_the_results_of_their_own_jobs(
    api: httpx.Client, store: TenantStore, train_body: Make, reads: list[str]
) -> None:
    rows = [store.jobs.get(submitted(api, train_body(name=f"job {number}"))) for number in range(6)]
    jobs = [replace(row, state=JobState.SUCCEEDED, finished_at=1.0) for row in rows] * 50
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda one: finished_results(store, one, CATALOG), jobs))
    assert [one.evaluations[0].name for one in found] == [job.id for job in jobs]
    assert 6 <= len(reads) <= 48, "each job at most once a thread"


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
