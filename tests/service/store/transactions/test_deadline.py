"""Default deadlines: ten times the estimate, standing still while no worker has a shard of the job."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.service.store.tables import jobs
from assay.service.store.transactions.deadline import overdue_message
from tests.support.jobs import add, claim, evaluate_spec, outcome, plan, train_spec


def planned(store: Store, seconds: float | None, **changes: object) -> str:
    """A planned job with two shards, and this default deadline."""
    job_id = add(store, evaluate_spec(**changes))
    made = plan(2) if seconds is None else plan(2) | {"deadline_seconds": seconds}
    assert store.shards.finish_plan(claim(store), made)
    return job_id


def earlier(store: Store, job_id: str, seconds: float) -> None:
    """Moves all that is known of the job's clock into the past, as if so long had gone by."""
    columns = ("started_at", "deadline", "paused_at")
    values = {name: jobs.c[name] - seconds for name in columns}
    with store._database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def finish(store: Store, held: Claim) -> None:
    assert store.shards.finish(held, outcome(held)) is not None


def test_a_job_that_computes_too_long_times_out_and_keeps_what_it_measured(store: Store) -> None:
    job_id = planned(store, 100)
    finish(store, claim(store))
    store.results.save(job_id, 0, {"name": "clean"})
    held = claim(store)
    earlier(store, job_id, 99)
    assert store.jobs.time_out() == 0
    earlier(store, job_id, 2)
    assert store.jobs.time_out() == 1
    job = store.jobs.get(job_id)
    assert job.state == "timed_out"
    # From the start of the job: with the time that its planning took, on a busy machine a second or two.
    assert re.search(r"default deadline of 10\d seconds", job.message)
    assert store.shards.renew(held, 60) == "cancel"
    assert (len(store.results.outcomes(job_id, None)), len(store.results.of(job_id))) == (1, 1)


def test_a_second_is_one() -> None:
    for timeout, words in ((1, "timeout of 1 second"), (2, "timeout of 2 seconds")):
        job: Any = SimpleNamespace(spec={"timeout_seconds": timeout})
        assert overdue_message(job).endswith(words)


def test_waiting_for_a_worker_does_not_count(store: Store) -> None:
    job_id = planned(store, 100)
    for _ in range(2):
        earlier(store, job_id, 1000)
        assert store.jobs.time_out() == 0, "no worker has it"
        held = claim(store)
        earlier(store, job_id, 40)
        assert store.jobs.time_out() == 0
        finish(store, held)
    earlier(store, job_id, 1000)
    assert store.jobs.time_out() == 0, "only its merge is missing"


def test_the_clock_runs_while_any_worker_has_a_shard(store: Store) -> None:
    job_id = planned(store, 100)
    first, _ = claim(store), claim(store)
    finish(store, first)
    earlier(store, job_id, 101)
    assert store.jobs.time_out() == 1


@pytest.mark.parametrize("how", ["release", "fail"])
def test_a_shard_given_back_stops_the_clock(store: Store, how: str) -> None:
    job_id = planned(store, 100)
    held = claim(store)
    if how == "release":
        store.shards.release(held)
    else:
        store.shards.fail(held, "boom", "no", retry=True)
    earlier(store, job_id, 1000)
    assert store.jobs.time_out() == 0
    claim(store)
    earlier(store, job_id, 101)
    assert store.jobs.time_out() == 1


def test_a_timeout_of_the_user_runs_on_in_the_queue_and_is_not_replaced(store: Store) -> None:
    job_id = planned(store, 10_000, timeout_seconds=50)
    earlier(store, job_id, 51)
    assert store.jobs.time_out() == 1
    assert "timeout of 50 seconds" in store.jobs.get(job_id).message


def test_a_retry_gets_the_default_deadline_anew(store: Store) -> None:
    job_id = planned(store, 100)
    claim(store)
    earlier(store, job_id, 101)
    assert store.jobs.time_out() == 1
    assert store.jobs.retry(job_id).deadline is None
    earlier(store, job_id, 1000)
    assert store.jobs.time_out() == 0
    claim(store)
    job = store.jobs.get(job_id)
    assert job.deadline is not None
    assert job.started_at is not None
    assert job.deadline - job.started_at == pytest.approx(100, abs=1)


def test_a_plan_of_an_earlier_version_has_no_deadline(store: Store) -> None:
    job_id = planned(store, None)
    claim(store)
    assert store.jobs.get(job_id).deadline is None
    assert store.jobs.time_out() == 0


def test_a_training_is_only_ever_given_less_time(store: Store) -> None:
    job_id = add(store, train_spec())
    held = claim(store)
    left = []
    for seconds in (1000, 100, 500):
        store.shards.limit(held, seconds)
        job = store.jobs.get(job_id)
        assert job.deadline is not None
        assert job.started_at is not None
        left.append(round((job.deadline - job.started_at) / 100))
    assert left == [10, 1, 1]
    timed = add(store, train_spec(timeout_seconds=50))
    store.shards.limit(claim(store), 10)
    job = store.jobs.get(timed)
    assert job.deadline is not None
    assert job.started_at is not None
    assert job.deadline - job.started_at == pytest.approx(50, abs=1)
