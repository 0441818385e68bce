"""A job's next attempt: what it keeps, what it forgets, and who pays for shards that still run."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from assay.service.contract.limits import Limits
from assay.service.store.fleet.quotas import stored_bytes
from assay.service.store.store import Store
from assay.service.store.tables import artifacts, shards
from assay.service.store.tenant_tables import accounts
from tests.support.jobs import claim, outcome, plan, planned
from tests.support.simulation import submit_many


def seconds_of(store: Store, tenant: str) -> float:
    with store._database.reading() as connection:
        used = select(accounts.c.seconds).where(accounts.c.tenant == tenant)
        return float(connection.execute(used).scalar() or 0.0)


def half_measured(store: Store) -> str:
    """A planned job with a finished shard and a file, which has failed."""
    job_id = planned(store, 2)
    held = claim(store)
    assert store.shards.finish(held, outcome(held)) is not None
    store.artifacts.add(job_id, "adversarial.safetensors", "/x", 5, "0" * 64, "application/octet-stream")
    store.jobs.fail(job_id, "x", "x")
    return job_id


def test_a_retry_keeps_the_files_and_a_replan_forgets_those_of_the_plan(store: Store) -> None:
    """They would be signed together with numbers of another plan."""
    job_id = half_measured(store)
    store.jobs.retry(job_id)
    assert [file.name for file in store.artifacts.of(job_id)] == ["adversarial.safetensors"]
    store.jobs.fail(job_id, "x", "x")
    store.jobs.replan(job_id)
    assert store.artifacts.of(job_id) == []


@pytest.mark.parametrize("replan", [False, True])
def test_shards_that_still_run_are_charged_once_when_the_job_goes_on(store: Store, replan: bool) -> None:
    """Else a loop of failing and planning again would use devices that no quota sees."""
    job_id = submit_many(store, "alice", 1, "evaluate")[0]
    assert store.shards.finish_plan(claim(store), plan(2))
    held = claim(store)
    with store._database.writing() as connection:
        running = update(shards).where(shards.c.state == "running")
        connection.execute(running.values(claimed_at=shards.c.claimed_at - 50))
    store.jobs.fail(job_id, "x", "x")
    (store.jobs.replan if replan else store.jobs.retry)(job_id)
    assert seconds_of(store, "alice") == pytest.approx(50, abs=5)
    late = store.shards.finish(held, outcome(held))
    assert (late is None) == replan, "its outcome is of the plan that was given up"
    assert seconds_of(store, "alice") == pytest.approx(50, abs=5)


def test_expired_files_are_not_counted_in_what_a_tenant_stores(store: Store) -> None:
    job_id = half_measured(store)
    with store._database.writing() as connection:
        assert stored_bytes(connection, None) == 5
        connection.execute(update(artifacts).values(expired_at=1.0))
        assert stored_bytes(connection, None) == 0
    store.jobs.retry(job_id, limits=Limits(stored_bytes=5))
