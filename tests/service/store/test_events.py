"""Events of a job: content and order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, update

from assay.service.contract.errors import NotFound
from assay.service.contract.records import TrainingSpeed
from assay.service.store.rows import EventRow
from assay.service.store.store import Store
from assay.service.store.tables import events, jobs
from assay.service.store.transactions.pace import training_speed
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import add, claim, evaluate_spec, finish_all, planned, told, train_spec

UNKNOWN = "0" * 26


def job_states(store: Store, job_id: str) -> list[str]:
    return [data["state"] for data in told(store, job_id, "state")]


def numbers(rows: list[EventRow] | None) -> list[int]:
    assert rows is not None
    return [row.seq for row in rows]


def test_a_job_from_its_submission_to_its_end(store: Store) -> None:
    job_id = planned(store, 1, 2)
    finish_all(store, job_id)
    for evaluation in (0, 1):
        store.results.save(job_id, evaluation, {"name": "clean", "metrics": {"top1": {"value": 0.5}}})
    assert store.jobs.succeed(job_id, {"seed": 0})
    rows = store.events.of(job_id)
    assert numbers(rows) == list(range(1, len(rows) + 1))
    assert job_states(store, job_id) == ["queued", "starting", "running", "succeeded"]
    assert [row.type for row in rows][-2:] == ["state", "end"]
    assert [row.type for row in rows].count("end") == 1
    assert rows[-1].data == {"state": "succeeded", "attempt": 1, "error": None}
    assert store.events.newest(job_id) == rows[-1]
    metrics = told(store, job_id, "metric")
    assert [data["evaluation"] for data in metrics] == [0, 1]
    assert metrics[0] == {"evaluation": 0, "name": "clean", "metrics": {"top1": {"value": 0.5}}}
    assert [row.at for row in rows] == sorted(row.at for row in rows)


def test_a_failure_is_told_with_its_reason_and_a_retry_goes_on_counting(store: Store) -> None:
    job_id = add(store, train_spec())
    store.shards.fail(claim(store), "out_of_memory", "8 GB", retry=False)
    error = {"type": "out_of_memory", "message": "8 GB"}
    assert told(store, job_id, "end") == [{"state": "failed", "attempt": 1, "error": error}]
    last = store.events.newest(job_id).seq
    store.jobs.retry(job_id)
    (row,) = store.events.of(job_id, after=last)
    assert (row.seq, row.type, row.data["state"], row.data["attempt"]) == (last + 1, "state", "queued", 2)
    assert row.data["error"] is None


def test_what_a_dependency_does_to_its_dependents_is_told(store: Store) -> None:
    source = add(store, train_spec())
    dependent = add(store, evaluate_spec(weights_from=source))
    store.jobs.cancel(source)
    assert job_states(store, dependent) == ["waiting", "failed"]
    (end,) = told(store, dependent, "end")
    assert end["error"]["type"] == "dependency_failed"


def test_canceling_is_told(store: Store) -> None:
    job_id = planned(store, 1)
    held = claim(store)
    store.jobs.cancel(job_id)
    assert job_states(store, job_id)[-1] == "canceling"
    assert told(store, job_id, "end") == []
    store.shards.canceled(held)
    assert job_states(store, job_id)[-1] == "canceled"
    assert store.events.newest(job_id).type == "end"


def test_a_running_training_tells_its_speed(store: Store) -> None:
    job_id = add(store, train_spec())
    held = claim(store)
    speed = TrainingSpeed(examples_per_second=1234.0, gpu_busy=0.61, gpu_memory=0.25)
    store.shards.progress(held, 1, 10, None, speed)
    with store._database.writing() as connection:
        connection.execute(update(jobs).values(progress_event_at=None))
    store.shards.progress(held, 2, 10)
    assert told(store, job_id, "progress")[-1].items() >= speed.items()
    assert training_speed(store.jobs.get(job_id)) == speed
    assert store.jobs.get(job_id).pace is not None
    store.shards.fail(held, "x", "no", retry=False)
    assert training_speed(store.jobs.get(job_id)) == {}, "it runs no more"


def test_a_result_that_is_merged_again_is_told_once(store: Store) -> None:
    job_id = planned(store, 1)
    finish_all(store, job_id)
    for value in (0.5, 0.5, 0.25):
        store.results.save(job_id, 0, {"name": "clean", "metrics": {"top1": {"value": value}}, "x": (1, 2)})
    values = [data["metrics"]["top1"]["value"] for data in told(store, job_id, "metric")]
    assert values == [0.5, 0.25]
    with pytest.raises(NotFound):
        store.results.save(UNKNOWN, 0, {"name": "clean"})


def test_a_change_that_is_rolled_back_is_not_told(store: Store) -> None:
    job_id = planned(store, 1)
    before = store.events.of(job_id)
    finish_all(store, job_id)
    after = store.events.of(job_id)
    with pytest.raises(Exception, match="JSON compliant"):
        store.results.save(job_id, 0, {"name": "clean", "metrics": {"top1": float("nan")}})
    assert store.events.of(job_id) == after
    assert after[: len(before)] == before


def test_pages(store: Store) -> None:
    job_id = planned(store, 1)
    every = store.events.of(job_id)
    assert store.events.of(job_id, after=1) == every[1:]
    assert store.events.of(job_id, after=1, limit=1) == every[1:2]
    assert store.events.of(job_id, until=2) == every[:2]
    assert store.events.of(job_id, after=99) == []
    assert store.events.of(UNKNOWN) == []
    with pytest.raises(NotFound):
        store.events.newest(UNKNOWN)


def test_what_is_new_of_many_jobs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.service.store.events.CHUNK", 2)
    ids = [add(store, train_spec()) for _ in range(5)]
    assert store.events.since(dict.fromkeys(ids, 1)) == {}
    for job_id in ids[1:4]:
        store.jobs.cancel(job_id)
    store.jobs.delete(ids[3])
    found = store.events.since({**dict.fromkeys(ids, 1), ids[2]: 2})
    assert found.keys() == set(ids[1:4])
    assert (numbers(found[ids[1]]), numbers(found[ids[2]]), found[ids[3]]) == ([2, 3], [3], None)


def test_deleting_a_job_deletes_its_events(store: Store) -> None:
    job_id = add(store, train_spec())
    store.jobs.cancel(job_id)
    store.jobs.delete(job_id)
    with store._database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(events)).scalar() == 0


@ALWAYS_ON_BOTH
def test_writers_at_once_leave_no_gap(store: Store) -> None:
    job_id = planned(store, 6)
    claims = [claim(store, worker=f"w{n}") for n in range(6)]

    def work(number: int) -> None:
        for step in range(5):
            store.shards.progress(claims[number], step, 10, f"{number} at {step}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    rows = store.events.of(job_id)
    assert len(rows) > 20
    assert numbers(rows) == list(range(1, len(rows) + 1))
