"""Progress of a job: the sum over its shards, and reports that are ahead of the database."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from assay.service.store.rows import Claim, ProgressSnapshot, RunningShard, ShardReport
from assay.service.store.store import Store
from assay.service.store.transactions.progress import with_reports
from tests.support.jobs import add, claim, evaluate_spec, outcome, plan, planned, train_spec


def running(claimed: Claim, **changes: int) -> RunningShard:
    values = {"done": 0, "total": 10, "cost": 2.5, "fence": claimed.fence, **changes}
    return RunningShard(id=claimed.shard_id, kind="evaluate", **values)


def snapshot(store: Store, job_id: str) -> ProgressSnapshot:
    found = store.shards.progress_snapshot(job_id)
    assert found is not None
    return found


def test_the_snapshot_has_the_sums_and_the_running_shards(store: Store) -> None:
    job_id = planned(store, 3)
    planned(store, 1)
    mine, theirs = claim(store, warm_job=job_id), claim(store, warm_job=job_id)
    store.shards.progress(mine, 4, 10)
    found = snapshot(store, job_id)
    assert (found.progress_done, found.cost_done) == (4, 1.0)
    assert found.running == [running(mine, done=4), running(theirs)]
    store.shards.release(mine)
    store.shards.release(theirs)
    assert snapshot(store, job_id) == ProgressSnapshot(0, 0.0, [])
    assert store.shards.progress_snapshot("01jd3q0x5v8f7m2n9k4t6w1z0y") is None


@pytest.mark.parametrize(
    ("reported", "done"),
    [(None, 4), (0, 4), (4, 4), (7, 7), (10, 10), (11, 10), (10**30, 10)],
)
def test_a_report_counts_beyond_the_row_and_never_beyond_the_shard(
    store: Store, reported: int | None, done: int
) -> None:
    job_id = planned(store, 2)
    mine = claim(store)
    store.shards.progress(mine, 4, 10)
    job = with_reports(store.jobs.get(job_id), snapshot(store, job_id), [reported])
    assert job.progress_done == done
    assert job.cost_done == pytest.approx(2.5 * done / 10)


def test_a_trainings_steps_and_no_plans_are_counted(store: Store) -> None:
    training = add(store, train_spec())
    mine = claim(store)
    assert with_reports(store.jobs.get(training), snapshot(store, training), [5]).progress_done == 0
    store.shards.progress(mine, 20, 100)
    job = with_reports(store.jobs.get(training), snapshot(store, training), [60])
    assert (job.progress_done, job.cost_done) == (60, 60.0)
    planning = add(store, evaluate_spec())
    claim(store)
    assert with_reports(store.jobs.get(planning), snapshot(store, planning), [1]).progress_done == 0
    assert plan(1)["shards"][0]["cost"] == 2.5, "what the sums above are made of"


@pytest.mark.parametrize(("order", "last"), [(1, "at 2"), (-1, "at 1")])
def test_reports_that_are_taken_together_count_as_one_by_one(
    either_store: Store, order: int, last: str
) -> None:
    store, counts = either_store, list[Any]()
    for together in (False, True):
        job_id = planned(store, 6)
        held = [claim(store, warm_job=job_id, warm_shards=0) for _ in range(5)]
        void, finished = held[3], held[4]
        store.shards.release(void)
        again = claim(store, warm_job=job_id)
        assert again.shard_id == void.shard_id
        store.shards.finish(finished, outcome(finished))
        reports = [ShardReport(one, 2 * n, f"at {n}") for n, one in enumerate(held, start=1)]
        reports[2] = ShardReport(held[2], 99, None)
        reports = reports[::order]
        if together:
            store.shards.report(job_id, reports)
        else:
            for one in reports:
                store.shards.progress(one.claim, one.done, None, one.message)
        job = store.jobs.get(job_id)
        done = [(shard.number, shard.done) for shard in store.shards.of(job_id) if shard.kind == "evaluate"]
        counts.append((job.progress_done, round(job.cost_done, 9), job.message, done))
        store.jobs.cancel(job_id)
    assert counts[0] == counts[1]
    assert counts[1][0] == 2 + 4 + 10 + 10
    assert counts[1][2] == last
    store.shards.report("01jd3q0x5v8f7m2n9k4t6w1z0y", reports)


def test_many_reports_are_few_statements(store: Store) -> None:
    counted: list[str] = []
    event.listen(store._database.engine, "before_cursor_execute", lambda *given: counted.append(given[2]))
    numbers = []
    for size in (2, 40):
        job_id = planned(store, size)
        held = [claim(store, warm_job=job_id) for _ in range(size)]
        counted.clear()
        store.shards.report(job_id, [ShardReport(one, 1, None) for one in held])
        numbers.append(len(counted))
        store.jobs.cancel(job_id)
    assert numbers[0] == numbers[1] <= 7, counted
