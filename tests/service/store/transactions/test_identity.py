"""Jobs are measured by workers of the identity that planned them, or planned again."""

from __future__ import annotations

import pytest

from assay.service.contract.errors import InvalidState
from assay.service.contract.states import JobState
from assay.service.store.audit import Actor
from assay.service.store.store import Store
from tests.support.jobs import (
    WORKER,
    add,
    claim,
    evaluate_spec,
    finish_all,
    outcome,
    plan,
    planned,
    train_spec,
)

OLD, NEW = "old0old0old0old0", "new0new0new0new0"


def test_a_planned_shard_is_for_workers_of_its_identity(store: Store) -> None:
    job_id = planned(store, 2, planned_by=OLD)
    for other in ("", NEW):
        assert store.shards.claim(WORKER, ["cpu"], lease_seconds=60, identity=other, warm_job=job_id) is None
        assert not store.shards.claimable(["cpu"], identity=other)
    assert store.shards.claimable(["cpu"], identity=OLD)
    assert claim(store, identity=OLD).job_id == job_id
    assert claim(store, identity=OLD, warm_job=job_id).job_id == job_id


def test_any_worker_plans_trains_and_measures_by_plans_of_earlier_versions(store: Store) -> None:
    training, old_version = add(store, train_spec()), planned(store, 1)
    assert {claim(store, identity=NEW).job_id for _ in range(2)} == {training, old_version}
    unplanned = add(store, evaluate_spec())
    assert claim(store, identity=NEW).job_id == unplanned


def test_a_tenant_with_jobs_of_two_identities_is_served_by_both(store: Store) -> None:
    first, second = planned(store, 1, planned_by=OLD), planned(store, 1, planned_by=NEW, priority=9)
    assert claim(store, identity=OLD).job_id == first
    assert claim(store, identity=NEW).job_id == second


def test_workers_are_counted_by_identity(store: Store) -> None:
    store.workers.beat("w", "box", ["cpu"], 1, identity=OLD)
    assert store.workers.online("cpu", identity=OLD) == 1
    assert store.workers.online("cpu", identity=NEW) == 0
    assert store.workers.online("cpu") == 1
    assert store.workers.online_lately("cpu", 1, NEW) == 0


def test_replan_measures_a_waiting_job_anew(store: Store) -> None:
    job_id = planned(store, 2, planned_by=OLD)
    held = claim(store, identity=OLD)
    assert store.shards.finish(held, outcome(held)) is not None
    job = store.jobs.replan(job_id, by=Actor("admin", "key", None))
    assert (job.state, job.attempt, job.plan, job.progress_done) == (JobState.QUEUED, 2, None, 0)
    assert [shard.kind for shard in store.shards.of(job_id)] == ["plan"]
    assert store.results.outcomes(job_id, 0) == []
    assert job.replans is not None
    assert [(one["attempt"], one["planned_by"]["digest"]) for one in job.replans] == [(2, OLD)]
    planning = claim(store, identity=NEW)
    assert store.shards.finish_plan(planning, plan(2, planned_by=NEW))
    assert store.shards.claim(WORKER, ["cpu"], lease_seconds=60, identity=OLD) is None
    while (found := store.shards.claim(WORKER, ["cpu"], lease_seconds=60, identity=NEW)) is not None:
        assert store.shards.finish(found, outcome(found)) is not None
    assert store.jobs.ready_to_finish() == [job_id]
    assert store.jobs.get(job_id).progress_done == 20


def test_a_retried_job_that_waits_for_its_planner_is_planned_again(store: Store) -> None:
    """After an upgrade it is queued with its plan, and no worker of that version is left."""
    job_id = planned(store, 2, planned_by=OLD)
    held = claim(store, identity=OLD)
    assert store.shards.finish(held, outcome(held)) is not None
    assert store.jobs.cancel(job_id).state == "canceled"
    assert store.jobs.retry(job_id).state == "queued"
    job = store.jobs.replan(job_id)
    assert (job.state, job.attempt, job.plan) == (JobState.QUEUED, 3, None)
    assert [shard.kind for shard in store.shards.of(job_id)] == ["plan"]
    planning = claim(store, identity=NEW)
    assert store.shards.finish_plan(planning, plan(1, planned_by=NEW))
    assert claim(store, identity=NEW).job_id == job_id


def test_a_claim_from_before_the_replan_is_void(store: Store) -> None:
    job_id = planned(store, 1, planned_by=OLD)
    late = claim(store, identity=OLD)
    store.jobs.fail(job_id, "evaluator_raised", "elsewhere")
    store.jobs.replan(job_id)
    planning = claim(store)
    assert store.shards.finish_plan(planning, plan(1, planned_by=NEW))
    held = claim(store, identity=NEW)
    assert held.shard_id == late.shard_id
    assert store.shards.renew(late, 60) == "lost"
    assert store.shards.finish(late, outcome(late)) is None
    assert store.shards.finish(held, outcome(held)) is not None


def test_what_cannot_be_planned_again(store: Store) -> None:
    done = planned(store, 1)
    finish_all(store, done)
    assert store.jobs.succeed(done, {})
    working = planned(store, 2)
    claim(store, warm_job=working)
    training, unplanned = add(store, train_spec()), add(store, evaluate_spec())
    for job_id, reason in (
        (training, "is no evaluation: only these have a plan"),
        (unplanned, "has no plan yet: it gets one"),
        (working, "workers are measuring job .*: cancel it"),
    ):
        with pytest.raises(InvalidState, match=reason):
            store.jobs.replan(job_id)
    store.jobs.cancel(unplanned)
    with pytest.raises(InvalidState, match="was never planned: retry it"):
        store.jobs.replan(unplanned)
    with pytest.raises(InvalidState, match=r"is succeeded: only .*, and those that wait for other workers"):
        store.jobs.replan(done)
