"""The end of a job: canceled when its last worker has stopped, failed once, deleted with all that it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay.service.contract.errors import InvalidState, NotFound
from assay.service.store.store import Store
from tests.support.ended_jobs import done, shard_states
from tests.support.jobs import (
    add,
    claim,
    evaluate_spec,
    plan,
    planned,
    states,
)


def test_a_queued_job_is_canceled_at_once(store: Store) -> None:
    job = store.jobs.cancel(add(store, evaluate_spec()))
    assert job.state == "canceled"
    assert job.finished_at is not None
    assert (job.error, shard_states(store, job.id)) == (None, ["canceled"])
    with pytest.raises(InvalidState, match="canceled"):
        store.jobs.cancel(job.id)


def test_a_job_at_work_is_canceled_when_its_last_worker_has_stopped(store: Store) -> None:
    job_id = planned(store, 4)
    first, second = claim(store), claim(store)
    assert store.jobs.cancel(job_id).state == "canceling"
    assert shard_states(store, job_id) == ["running", "running", "canceled", "canceled", "done"]
    assert store.jobs.cancel(job_id).state == "canceling"
    assert not store.jobs.fail(job_id, "boom", "no")
    assert store.shards.renew(first, 60) == store.shards.renew(second, 60) == "cancel"
    store.shards.canceled(first)
    assert states(store, job_id) == ["canceling"]
    store.shards.canceled(second)
    assert states(store, job_id) == ["canceled"]
    assert shard_states(store, job_id) == ["canceled"] * 4 + ["done"]


def test_a_job_at_work_without_a_worker_is_canceled_at_once(store: Store) -> None:
    assert store.jobs.cancel(planned(store, 2)).state == "canceled"


@pytest.mark.parametrize("end", ["release", "fail", "expire", "finish_plan"])
def test_however_the_last_worker_leaves_the_job_is_canceled(store: Store, end: str) -> None:
    job_id = add(store, evaluate_spec())
    held = claim(store, lease_seconds=-1)
    assert store.jobs.cancel(job_id).state == "canceling"
    ways: dict[str, Callable[[], object]] = {
        "release": lambda: store.shards.release(held),
        "fail": lambda: store.shards.fail(held, "boom", "no", retry=True),
        "expire": store.shards.expire,
        "finish_plan": lambda: store.shards.finish_plan(held, plan(3)),
    }
    assert ways[end]() in (None, False, 1, store.jobs.get(job_id))
    assert (states(store, job_id), shard_states(store, job_id)) == (["canceled"], ["canceled"])


def test_a_job_fails_once(store: Store) -> None:
    job_id = planned(store, 2)
    assert store.jobs.fail(job_id, "save_failed", "disk full")
    assert not store.jobs.fail(job_id, "other", "too late")
    job = store.jobs.get(job_id)
    assert (job.state, job.error) == ("failed", {"type": "save_failed", "message": "disk full"})
    assert shard_states(store, job_id) == ["canceled", "canceled", "done"]
    assert not store.jobs.fail(done(store), "save_failed", "disk full")


def test_only_ended_jobs_are_deleted_with_all_that_is_theirs(store: Store) -> None:
    job_id = done(store)
    store.artifacts.add(job_id, "log", "/tmp/log", 1, "sha", "text/plain")
    kept, _ = store.jobs.add(evaluate_spec(), body_sha256="sha", idempotency_key="kept")
    store.jobs.delete(job_id)
    with pytest.raises(NotFound):
        store.jobs.get(job_id)
    assert store.shards.of(job_id) == []
    assert store.results.outcomes(job_id, None) == []
    assert store.results.of(job_id) == {}
    assert store.artifacts.of(job_id) == []
    with pytest.raises(InvalidState, match="queued"):
        store.jobs.delete(kept.id)
    store.jobs.cancel(kept.id)
    store.jobs.delete(kept.id)
    # The key went with its job, and may be used again.
    assert store.jobs.add(evaluate_spec(), body_sha256="other", idempotency_key="kept")[1]
    assert store.jobs.page()[0] != []


def test_the_message_is_one_line_that_every_database_can_hold(store: Store) -> None:
    job_id = add(store, evaluate_spec(name="a\0b\ud800", tags=["\0", "\ud800"]))
    store.jobs.log(job_id, "epoch\n 3\tof 60 \0 \udfff" + "x" * 1000)
    job = store.jobs.get(job_id)
    assert job.message.startswith("epoch 3 of 60 \ufffd \ufffdxxx")
    assert len(job.message) == 500
    assert (job.name, job.tags) == ("a\0b\ud800", ["\0", "\ud800"])
    assert [row.id for row in store.jobs.page(tag="\0")[0]] == [job_id]
    held = claim(store)
    assert store.shards.fail(held, "boom", "\0", retry=False).error == {"type": "boom", "message": "\0"}
