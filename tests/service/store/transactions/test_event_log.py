"""The log of a job's events: progress, messages, and thinning for long jobs."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import update

from assay.service.store.store import Store
from assay.service.store.tables import jobs
from assay.service.store.transactions import event_log
from tests.support.jobs import add, claim, told, train_spec


def test_progress_is_told_at_most_twice_a_second(store: Store) -> None:
    job_id = add(store, train_spec())
    held = claim(store)
    for done in (1, 2, 3):
        store.shards.progress(held, done, 10)
    assert [data["done"] for data in told(store, job_id, "progress")] == [1]
    # As if half a second had passed, then as if the clock had been set back by an hour.
    for done, shift in ((4, -event_log.PROGRESS_SECONDS), (5, 3600.0)):
        with store._database.writing() as connection:
            moved = {"progress_event_at": jobs.c.progress_event_at + shift}
            connection.execute(update(jobs).values(**moved))
        store.shards.progress(held, done, 10)
    progress = told(store, job_id, "progress")
    assert [data["done"] for data in progress] == [1, 4, 5]
    assert (progress[-1]["total"], progress[-1]["unit"]) == (10, "steps")
    assert progress[-1]["eta_seconds"] >= 0


def test_a_message_is_told_when_it_changes(store: Store) -> None:
    job_id = add(store, train_spec())
    held = claim(store)
    for message in ("epoch 1", "epoch 1", None, "epoch\n2"):
        store.shards.progress(held, 1, 10, message)
    store.jobs.log(job_id, "epoch 2")
    store.jobs.log(job_id, "")
    store.jobs.log(job_id, "epoch 3")
    store.jobs.log("0" * 26, "no such job")
    assert [data["message"] for data in told(store, job_id, "log")] == ["epoch 1", "epoch 2", "epoch 3"]
    rows = store.events.of(job_id)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("end", ["timed_out", "failed", "canceled"])
def test_a_late_message_of_a_worker_does_not_outlive_the_end(store: Store, end: str) -> None:
    job_id = add(store, train_spec(timeout_seconds=1))
    held = claim(store)
    store.shards.progress(held, 1, 10, "epoch 1")
    if end == "timed_out":
        store.jobs.time_out(time.time() + 1000)
    elif end == "failed":
        store.jobs.fail(job_id, "broken", "it broke")
    else:
        store.jobs.cancel(job_id)
        store.shards.release(held)
    ended = store.jobs.get(job_id)
    assert ended.state == end
    store.shards.progress(held, 2, 10, "epoch 2")
    store.jobs.log(job_id, "epoch 3")
    assert store.jobs.get(job_id).message == ended.message
    assert [data["message"] for data in told(store, job_id, "log")] == ["epoch 1"]


def test_old_reports_of_a_long_job_are_thinned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("KEEP_EVENTS", 8), ("THIN_EVERY", 8), ("THIN_BY", 4), ("PROGRESS_SECONDS", 0.0)):
        monkeypatch.setattr(event_log, name, value)
    job_id = add(store, train_spec())
    held = claim(store)
    for done in range(1, 40):
        store.shards.progress(held, done, 100)
    rows = store.events.of(job_id)
    newest = rows[-1].seq
    assert [row.seq for row in rows][-8:] == list(range(newest - 7, newest + 1)), "the newest are all kept"
    old = [row for row in rows if row.seq <= newest - 16]
    assert {row.seq % 4 for row in old if row.type == "progress"} == {0}
    assert [one["state"] for one in told(store, job_id, "state")] == ["queued", "starting", "running"], (
        "states are never thinned"
    )
