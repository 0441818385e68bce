"""Cancel, time-out, failure, retry and deletion: effects on a job and its shards."""

from __future__ import annotations

import pytest

from assay.service.contract.errors import InvalidState, NotFound
from assay.service.store.store import Store
from tests.support.ended_jobs import done, shard_states
from tests.support.jobs import (
    add,
    claim,
    evaluate_spec,
    finish_all,
    only,
    outcome,
    plan,
    planned,
    states,
    train_spec,
)

UNKNOWN = "0" * 26


def test_a_new_job_is_queued_with_its_first_shard(store: Store) -> None:
    spec = evaluate_spec(name="n", tags=["b", "a"], priority=8, model="vit")
    job, created = store.jobs.add(spec, body_sha256="sha")
    assert created
    assert store.jobs.get(job.id) == job
    assert (job.kind, job.name, job.tags, job.model, job.priority) == ("evaluate", "n", ["b", "a"], "vit", 8)
    assert (job.state, job.attempt, job.message, job.error, job.spec) == ("queued", 1, "", None, spec)
    assert (job.progress_done, job.progress_total, job.progress_unit) == (0, None, "examples")
    first = only(store.shards.of(job.id))
    assert (first.id, first.kind, first.state, first.owner) == (f"{job.id}-plan", "plan", "queued", None)
    train = add(store, train_spec())
    assert only(store.shards.of(train)).kind == "train"
    assert store.jobs.get(train).progress_unit == "steps"


@pytest.mark.parametrize("call", ["get", "cancel", "retry", "delete"])
def test_unknown_jobs_are_not_found(store: Store, call: str) -> None:
    with pytest.raises(NotFound, match=UNKNOWN):
        getattr(store.jobs, call)(UNKNOWN)


def test_unknown_jobs_are_no_trouble_for_workers(store: Store) -> None:
    assert not store.jobs.fail(UNKNOWN, "boom", "no")
    assert not store.jobs.succeed(UNKNOWN, {})
    store.jobs.log(UNKNOWN, "hello")


def test_an_outcome_that_comes_while_canceling_is_kept_for_a_retry(store: Store) -> None:
    job_id = planned(store, 2)
    held = claim(store)
    store.jobs.cancel(job_id)
    finished = store.shards.finish(held, outcome(held))
    assert finished is not None
    assert not finished.job_done
    assert states(store, job_id) == ["canceled"]
    store.jobs.retry(job_id)
    assert shard_states(store, job_id) == ["done", "queued", "done"]
    assert store.jobs.get(job_id).progress_done == 10


def test_a_job_past_its_deadline_times_out(store: Store) -> None:
    late = planned(store, 2, timeout_seconds=-1)
    held = claim(store)
    others = [
        planned(store, 1),
        planned(store, 1, timeout_seconds=900),
        add(store, evaluate_spec(timeout_seconds=-1)),
    ]
    assert store.jobs.time_out() == 1
    assert store.jobs.time_out() == 0
    job = store.jobs.get(late)
    assert job.state == "timed_out"
    assert job.error is not None
    assert job.error["type"] == "timed_out"
    assert job.finished_at is not None
    assert shard_states(store, late) == ["running", "canceled", "done"]
    assert store.shards.renew(held, 60) == "cancel"
    store.shards.canceled(held)
    assert states(store, late, *others) == ["timed_out", "running", "running", "queued"]


def test_a_retry_keeps_what_is_done_and_queues_the_rest(store: Store) -> None:
    job_id = planned(store, 4, timeout_seconds=500)
    finished, failing, running = claim(store), claim(store), claim(store)
    store.shards.finish(finished, outcome(finished))
    store.shards.progress(running, 3, 10)
    store.shards.fail(failing, "boom", "no", retry=False)
    assert shard_states(store, job_id) == ["done", "failed", "running", "canceled", "done"]
    job = store.jobs.retry(job_id)
    assert (job.state, job.attempt, job.error, job.message) == ("queued", 2, None, "")
    assert (job.started_at, job.finished_at, job.deadline) == (None, None, None)
    assert shard_states(store, job_id) == ["done", "queued", "queued", "queued", "done"]
    assert {(row.failures, row.losses) for row in store.shards.of(job_id)} == {(0, 0)}
    assert len(store.results.outcomes(job_id, 0)) == 1
    assert (job.progress_done, job.progress_total) == (10, 40)
    # The worker of the attempt before finds that it lost its shard.
    assert store.shards.renew(running, 60) == "lost"
    again = claim(store)
    assert (again.attempt, again.number) == (2, 1)
    started = store.jobs.get(job_id)
    assert started.state == "running"
    assert started.started_at is not None
    assert started.deadline is not None
    finish_all(store, job_id)
    store.shards.finish(again, outcome(again))
    assert store.jobs.succeed(job_id, {})
    assert len(store.results.outcomes(job_id, 0)) == 4


def test_a_retry_before_the_plan_plans(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    store.shards.fail(claim(store), "missing_data", "no folder", retry=False)
    store.jobs.retry(job_id)
    held = claim(store)
    assert (held.kind, held.attempt, held.failures) == ("plan", 2, 0)
    assert store.shards.finish_plan(held, plan(1))


def test_a_retry_of_a_job_that_only_could_not_be_merged_is_ready_to_merge(store: Store) -> None:
    job_id = planned(store, 1)
    finish_all(store, job_id)
    store.jobs.fail(job_id, "save_failed", "disk full")
    assert store.jobs.ready_to_finish() == []
    job = store.jobs.retry(job_id)
    assert (job.state, job.attempt) == ("running", 2)
    assert store.jobs.ready_to_finish() == [job_id]
    assert store.jobs.succeed(job_id, {})


def test_only_jobs_that_ended_without_success_are_retried(store: Store) -> None:
    succeeded, running, starting = done(store), planned(store, 1), add(store, train_spec())
    assert claim(store, warm_job=starting).job_id == starting
    queued = add(store, evaluate_spec())
    for job_id in (queued, starting, running, succeeded):
        with pytest.raises(InvalidState, match="retried"):
            store.jobs.retry(job_id)
    for end in ("canceled", "failed"):
        store.jobs.cancel(queued) if end == "canceled" else store.jobs.fail(queued, "boom", "no")
        assert states(store, queued) == [end]
        assert store.jobs.retry(queued).state == "queued"
    assert store.jobs.get(queued).attempt == 3


def test_a_timed_out_job_is_retried_with_a_new_deadline(store: Store) -> None:
    job_id = planned(store, 1, timeout_seconds=-1)
    store.jobs.time_out()
    assert store.jobs.retry(job_id).deadline is None
    assert store.jobs.time_out() == 0
    claim(store)
    assert store.jobs.time_out() == 1


def test_the_time_without_a_worker_says_nothing_of_the_speed(store: Store) -> None:
    job_id = planned(store, 2)
    held = claim(store)
    store.shards.progress(held, 1, None)
    assert store.jobs.get(job_id).paced_at is not None
    other = claim(store)
    store.shards.release(held)
    assert store.jobs.get(job_id).paced_at is not None, "another shard runs"
    store.shards.release(other)
    assert store.jobs.get(job_id).paced_at is None
    claim(store)
    assert store.jobs.get(job_id).paced_at is not None
