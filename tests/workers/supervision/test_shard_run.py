"""One shard, through failures of its evaluator, its lease or the database."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from assay.service.store.store import Store
from tests.support.workers import (
    away,
    ended,
    group,
    losses_and_failures,
    measured,
    settings,
    submit,
    submit_training,
    supervising,
    unanswered,
    wait_for,
)


def test_progress_is_recorded_while_a_shard_runs(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=1 examples=10 evaluate:seconds=0.5")
    seen: set[tuple[int, str]] = set()

    def look() -> bool:
        job = store.jobs.get(job_id)
        seen.add((job.progress_done, job.message))
        return job.state == "succeeded"

    with supervising(store, settings(tmp_path)):
        wait_for(look)
    assert len({done for done, _ in seen}) > 3
    assert any(message.endswith(" of 10") for _, message in seen)


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["evaluate:hang", "evaluate:seconds=600", "evaluate:hang deaf child", "hang"])
def test_cancel_ends_a_busy_evaluator(store: Store, tmp_path: Path, how: str) -> None:
    """SIGTERM is answered at once, and SIGKILL follows after the grace.

    `tests/e2e/test_storm.py` holds the contract's 20 s.
    """
    state = "starting" if how == "hang" else "running"
    job_id = submit(store, how)
    chosen = settings(tmp_path, cancel_grace_seconds=0.3)
    with supervising(store, chosen) as (supervisor,):
        wait_for(lambda: store.jobs.get(job_id).state == state and supervisor.evaluator_pid)
        pid = supervisor.evaluator_pid
        assert pid is not None
        store.jobs.cancel(job_id)
        wait_for(lambda: store.jobs.get(job_id).state == "canceled")
        wait_for(lambda: not group(pid))
        wait_for(lambda: supervisor.evaluator_pid is None)
        other = submit(store, "")
        assert ended(store, other).state == "succeeded", "the supervisor goes on"
    assert losses_and_failures(store, job_id) == (0, 0)


@pytest.mark.sampled
@pytest.mark.parametrize("accident", ["crash", "kill", "error"])
def test_what_fails_once_is_tried_again_and_counted_once(
    either_store: Store, tmp_path: Path, accident: str
) -> None:
    job_id = submit(either_store, f"shards=2 evaluate:{accident}=once")
    with supervising(either_store, settings(tmp_path)):
        assert ended(either_store, job_id).state == "succeeded"
    assert losses_and_failures(either_store, job_id) == (0, 2), "one for each of two shards"
    assert len(measured(either_store, job_id)) == 10


@pytest.mark.costly
def test_what_always_crashes_fails_with_the_reason(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=1 evaluate:crash=always")
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
        other = submit(store, "")
        assert ended(store, other).state == "succeeded"
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["type"] == "evaluator_died"
    assert "exit code 7" in job.error["message"]
    assert "last words" in job.error["message"]
    assert losses_and_failures(store, job_id) == (0, 3)


@pytest.mark.costly
def test_a_final_error_fails_at_once(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "evaluate:error=final shards=1")
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert job.error == {"type": "told_to", "message": "as told"}
    assert losses_and_failures(store, job_id) == (0, 1)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("how", "error_type", "text"),
    [
        ("garbage", "bad_report", "not a report"),
        ("evaluate:short", "bad_report", "measured 4 examples, the shard has 5"),
    ],
)
def test_answers_that_break_the_protocol_fail_the_job(
    store: Store, tmp_path: Path, how: str, error_type: str, text: str
) -> None:
    job_id = submit(store, how)
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert job.error is not None
    assert job.error["type"] == error_type
    assert text in job.error["message"]


@pytest.mark.costly
def test_an_evaluator_that_cannot_be_started_is_the_workers_fault(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "")
    with supervising(store, settings(tmp_path, evaluator_command="/no/such/program")) as (supervisor,):
        wait_for(lambda: "/no/such/program" in store.jobs.get(job_id).message)
        wait_for(lambda: store.workers.online("cpu") == 0)
        assert supervisor.is_alive()
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"
    assert losses_and_failures(store, job_id) == (0, 0)


def test_a_lost_lease_writes_nothing(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has claimed the shard: results of this one are neither recorded nor counted."""
    store, claim = either_store, either_store.shards.claim
    job_id = submit(store, "shards=1 evaluate:seconds=600")
    with supervising(store, settings(tmp_path)) as (supervisor,):
        row = wait_for(lambda: next((s for s in store.shards.running() if s.kind == "evaluate"), None))
        pid = wait_for(lambda: supervisor.evaluator_pid)
        monkeypatch.setattr(store.shards, "claim", lambda *a, **o: None)
        assert store.shards.expire(dead_owners=[row.worker]) == 1
        theirs = claim("other:k:1:2:0", ["cpu"], lease_seconds=60)
        assert theirs is not None
        assert theirs.fence == row.fence + 1
        wait_for(lambda: not group(pid))
        wait_for(lambda: supervisor.evaluator_pid is None)
    (shard,) = store.shards.running()
    assert (shard.owner, shard.fence, shard.failures) == ("other:k:1:2:0", theirs.fence, 0)
    assert measured(store, job_id) == []


@pytest.mark.costly
def test_stop_releases_the_shard_uncounted(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=1 evaluate:hang")
    with supervising(store, settings(tmp_path)) as (supervisor,):
        wait_for(lambda: store.jobs.get(job_id).state == "running" and store.shards.running())
        pid = supervisor.evaluator_pid
    assert pid is not None
    assert group(pid) == []
    assert store.shards.running() == []
    assert losses_and_failures(store, job_id) == (0, 0)
    assert {s.state for s in store.shards.of(job_id)} == {"done", "queued"}
    assert store.jobs.get(job_id).state == "running"


@pytest.mark.sampled
@pytest.mark.parametrize("method", ["finish", "finish_plan", "progress", "claim", "renew", "fail"])
def test_a_database_that_is_away_loses_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(store.shards, method, away(3, getattr(store.shards, method)))
    job_id = submit(store, "shards=2 evaluate:seconds=0.1 evaluate:crash=once", evaluations=2)
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"
    assert losses_and_failures(store, job_id) == (0, 4), "each shard crashed once, and nothing else counts"
    assert sorted(store.results.of(job_id)) == [0, 1]
    assert list((tmp_path / "spool").iterdir()) == []


@pytest.mark.costly
def test_a_progress_report_that_is_not_recorded_never_mixes_up_two_shards(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every outcome holds the examples of its own shard, through database failures."""
    flaky = iter(range(10_000))
    real = store.shards.progress

    def progress(*arguments: Any) -> None:
        if next(flaky) % 2:
            raise OperationalError("", {}, Exception("connection refused"))
        real(*arguments)

    monkeypatch.setattr(store.shards, "progress", progress)
    job_id = submit(store, "shards=4")
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"
    for row in store.results.outcomes(job_id, 0):
        assert row.columns["id"] == [f"{i:05d}" for i in range(row.number * 5, row.number * 5 + 5)]


@pytest.mark.costly
def test_a_deleted_job_does_not_stop_the_supervisor(store: Store, tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"
    job_id = submit(store, f"shards=1 evaluate:until={go_on} evaluate:error=final")
    with supervising(store, settings(tmp_path, control_seconds=5)) as (supervisor,):
        wait_for(lambda: store.jobs.get(job_id).state == "running" and store.shards.running())
        store.jobs.fail(job_id, "by_hand", "for the test")
        store.jobs.delete(job_id)
        go_on.touch()
        other = submit(store, "")
        assert ended(store, other).state == "succeeded"
        assert supervisor.is_alive()


@pytest.mark.costly
def test_an_outcome_whose_answer_was_lost_is_recorded_once_and_merged(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke after the commit: the worker must not conclude that another has the shard."""
    job_id = submit(store, "shards=1")
    monkeypatch.setattr(store.shards, "finish", unanswered(1, store.shards.finish))
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"
    assert len(measured(store, job_id)) == 5
    assert losses_and_failures(store, job_id) == (0, 0)
    assert list((tmp_path / "spool").iterdir()) == []


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["train:hang", "train:hang deaf child"])
def test_an_evaluator_that_hangs_is_ended_and_counted(store: Store, tmp_path: Path, how: str) -> None:
    job_id = submit_training(store, how)
    chosen = settings(tmp_path, stall_seconds=0.1, cancel_grace_seconds=0.2)
    with supervising(store, chosen):
        job = ended(store, job_id)
        other = submit(store, "")
        assert ended(store, other).state == "succeeded", "the supervisor goes on"
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["type"] == "no_progress"
    assert "made no progress for 1 s" in job.error["message"]
    assert losses_and_failures(store, job_id) == (0, 3)


@pytest.mark.costly
def test_a_stopped_evaluator_is_ended_and_its_shard_done_again(store: Store, tmp_path: Path) -> None:
    job_id = submit_training(store, "steps=40 seconds=4")
    with supervising(store, settings(tmp_path, stall_seconds=0.5, cancel_grace_seconds=0.2)) as (supervisor,):
        wait_for(lambda: store.jobs.get(job_id).progress_done > 2)
        pid = supervisor.evaluator_pid
        assert pid is not None
        os.killpg(pid, signal.SIGSTOP)
        wait_for(lambda: supervisor.evaluator_pid not in (None, pid))
        assert ended(store, job_id).state == "succeeded"
    assert losses_and_failures(store, job_id)[0] == 0
