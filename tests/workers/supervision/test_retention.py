"""Files are deleted long after the end of their job, and never while needed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import literal

from assay.service.contract.audit import chain_of
from assay.service.contract.errors import InvalidSpec, InvalidState
from assay.service.files.file_store import write_file
from assay.service.store import audit
from assay.service.store.audit import Actor, AuditFilter
from assay.service.store.ids import new_id
from assay.service.store.store import Store
from assay.service.submission.dependencies import dependencies_of
from assay.workers.supervision import retention
from assay.workers.supervision.reaper import Reaper
from assay.workers.supervision.retention import Retention
from tests.support.jobs import (
    WAYS,
    Using,
    add,
    claim,
    evaluate_spec,
    finish_all,
    planned,
    succeeded,
    train_spec,
)
from tests.support.workers import settings

DAY = retention.DAY


def keeping(store: Store, tmp_path: Path, days: float) -> Retention:
    return Retention(store, settings(tmp_path, keep_artifacts_days=days))


def trained(store: Store, tmp_path: Path, *, days_ago: float) -> str:
    """A training job that ended some days ago, with weights and a log."""
    job_id = add(store, train_spec())
    succeeded(store, store.jobs.get(job_id))
    for name in ("weights.safetensors", "training_log.jsonl"):
        file = write_file(folder(tmp_path, job_id) / name, b"x")
        store.artifacts.add(job_id, **file)
    age(store, job_id, days_ago)
    return job_id


def age(store: Store, job_id: str, days: float) -> None:
    with store._database.writing() as connection:
        text = f"UPDATE jobs SET finished_at = finished_at - {days * DAY} WHERE id = '{job_id}'"
        connection.exec_driver_sql(text)


def folder(tmp_path: Path, job_id: str) -> Path:
    path = settings(tmp_path).folder(job_id)
    path.mkdir(parents=True, exist_ok=True)
    return path


def there(tmp_path: Path) -> set[str]:
    return {path.name for path in settings(tmp_path).artifacts.iterdir()}


def test_old_files_go_and_the_rest_stays(either_store: Store, tmp_path: Path) -> None:
    store = either_store
    old, young = trained(store, tmp_path, days_ago=8), trained(store, tmp_path, days_ago=6)
    assert keeping(store, tmp_path, 7).sweep() == 1
    assert there(tmp_path) == {young}
    assert [row.expired_at is None for row in store.artifacts.of(old)] == [False, False]
    assert [row.expired_at is None for row in store.artifacts.of(young)] == [True, True]
    assert store.jobs.get(old).state == "succeeded"
    assert keeping(store, tmp_path, 7).sweep() == 0


def test_without_a_limit_everything_is_kept(store: Store, tmp_path: Path) -> None:
    old = trained(store, tmp_path, days_ago=5000)
    assert keeping(store, tmp_path, 0).sweep() == 0
    assert there(tmp_path) == {old}


def test_results_outlive_their_files(store: Store, tmp_path: Path) -> None:
    job_id = planned(store, 1)
    finish_all(store, job_id)
    store.results.save(job_id, 0, {"name": "clean"})
    assert store.jobs.succeed(job_id, {})
    age(store, job_id, 2)
    folder(tmp_path, job_id)
    assert keeping(store, tmp_path, 1).sweep() == 1
    assert store.results.of(job_id) == {0: {"name": "clean"}}
    assert len(store.results.outcomes(job_id, 0)) == 1


@pytest.mark.parametrize("state", ["queued", "running"])
@WAYS
def test_weights_that_a_job_needs_stay(either_store: Store, tmp_path: Path, state: str, using: Using) -> None:
    store = either_store
    source = trained(store, tmp_path, days_ago=100)
    needing = add(store, evaluate_spec(**using(source)))
    if state == "running":
        claim(store)
    sweeper = keeping(store, tmp_path, 1)
    assert sweeper.sweep() == 0
    assert (folder(tmp_path, source) / "weights.safetensors").exists()
    store.jobs.fail(needing, "boom", "no")
    assert sweeper.sweep() == 1


@WAYS
def test_expired_weights_are_refused(either_store: Store, tmp_path: Path, using: Using) -> None:
    store = either_store
    source = trained(store, tmp_path, days_ago=100)
    failed = add(store, evaluate_spec(**using(source)))
    store.jobs.fail(failed, "boom", "no")
    keeping(store, tmp_path, 1).sweep()
    with pytest.raises(InvalidSpec) as caught:
        add(store, evaluate_spec(**using(source)))
    (detail,) = caught.value.details
    assert detail.loc == [*dependencies_of(evaluate_spec(**using(source)))[0].loc]
    assert "expired" in detail.message
    assert store.jobs.source(source).expired
    with pytest.raises(InvalidState, match=f"weights of job {source}.*have expired"):
        store.jobs.retry(failed)
    assert store.jobs.get(failed).state == "failed"


def test_a_job_that_is_not_over_keeps_its_checkpoints(store: Store, tmp_path: Path) -> None:
    job_id = add(store, train_spec())
    held = claim(store)
    (folder(tmp_path, job_id) / "step-10.pt").write_text("x")
    sweeper = keeping(store, tmp_path, 1)
    assert sweeper.sweep() == 0
    store.shards.fail(held, "boom", "no", retry=False)
    assert sweeper.sweep() == 0
    age(store, job_id, 2)
    assert sweeper.sweep() == 1
    assert there(tmp_path) == set()


def test_files_of_a_later_attempt_have_not_expired(store: Store, tmp_path: Path) -> None:
    job_id = add(store, train_spec())
    store.artifacts.add(job_id, **write_file(folder(tmp_path, job_id) / "log", b"x"))
    store.jobs.fail(job_id, "boom", "no")
    age(store, job_id, 2)
    keeping(store, tmp_path, 1).sweep()
    assert store.artifacts.get(job_id, "log").expired_at is not None
    store.jobs.retry(job_id)
    store.artifacts.add(job_id, **write_file(folder(tmp_path, job_id) / "log", b"x"))
    assert store.artifacts.get(job_id, "log").expired_at is None
    assert keeping(store, tmp_path, 1).sweep() == 0


def make_old(path: Path) -> None:
    long_ago = time.time() - retention.ORPHAN_SECONDS - 60
    for one in (*path.rglob("*"), path):
        os.utime(one, (long_ago, long_ago))


def test_a_folder_without_a_job_goes_after_a_week(store: Store, tmp_path: Path) -> None:
    known = {trained(store, tmp_path, days_ago=0) for _ in range(2)}
    old, young = new_id(1.0), new_id(2.0)
    for job_id in (old, young):
        (folder(tmp_path, job_id) / "late.csv").write_text("x")
    make_old(folder(tmp_path, old))
    assert keeping(store, tmp_path, 0).sweep() == 1
    assert there(tmp_path) == {*known, young}


def test_a_wrong_database_deletes_nothing(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(store, tmp_path, days_ago=0)
    for number in range(2):
        make_old(folder(tmp_path, new_id(float(number))))
    assert keeping(store, tmp_path, 1).sweep() == 0
    assert len(there(tmp_path)) == 3
    assert "2 of 3 job folders" in caplog.text


def test_what_is_no_folder_of_a_job_is_left_alone(store: Store, tmp_path: Path) -> None:
    for name in ("notes", "..x", "01ABC"):
        make_old(folder(tmp_path, name))
    assert keeping(store, tmp_path, 1).sweep() == 0
    assert len(there(tmp_path)) == 3


def test_what_a_killed_worker_left_is_removed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(store, tmp_path, days_ago=8)

    def killed(path: Path, ignore_errors: bool = False) -> None:
        raise OSError("killed in the middle")

    with monkeypatch.context() as patch:
        patch.setattr(retention.shutil, "rmtree", killed)
        keeping(store, tmp_path, 7).sweep()
    (left,) = there(tmp_path)
    assert left.startswith(".expired-")
    keeping(store, tmp_path, 7).sweep()
    assert there(tmp_path) == set()


def test_many_go_in_several_sweeps_that_follow_soon(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        trained(store, tmp_path, days_ago=8)
    monkeypatch.setattr(retention, "MAX_PER_SWEEP", 2)
    monkeypatch.setattr(retention, "BATCH", 2)
    sweeper = keeping(store, tmp_path, 7)
    assert [sweeper.sweep() for _ in range(4)] == [2, 2, 1, 0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of the retention forward."""
    offset = [0.0]
    now = time.monotonic
    monkeypatch.setattr(retention.time, "monotonic", lambda: now() + offset[0])

    def forward(seconds: float) -> None:
        offset[0] += seconds

    return forward


def test_the_reaper_sweeps_now_and_then(store: Store, tmp_path: Path, clock: Callable[[float], None]) -> None:
    first = trained(store, tmp_path, days_ago=8)
    reaper = Reaper(store, settings(tmp_path, keep_artifacts_days=7), device_classes=("cpu",))
    reaper.sweep()
    assert first not in there(tmp_path)
    second = trained(store, tmp_path, days_ago=8)
    reaper.sweep()
    assert second in there(tmp_path)
    clock(retention.EVERY_SECONDS + 1)
    reaper.sweep()
    assert second not in there(tmp_path)


def test_uploads_that_never_ended_go_after_a_day(store: Store, tmp_path: Path) -> None:
    new, old = (tmp_path / "artifacts" / f".upload-{name}" for name in ("new", "old"))
    new.parent.mkdir()
    for path in (new, old):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 1.1 * DAY,) * 2)
    assert keeping(store, tmp_path, 0).sweep() == 0
    assert (new.exists(), old.exists()) == (True, False)


@pytest.mark.parametrize(("days", "left"), [(30, ["audit.expire"]), (0, ["access"]), (5000, ["access"])])
def test_old_audit_entries_go(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, left: list[str]
) -> None:
    with monkeypatch.context() as then:
        then.setattr(audit, "now", lambda: literal(time.time() - 100 * DAY))
        either_store.audit.add(Actor(), "access", "/x", outcome="refused", detail={})
    Retention(either_store, settings(tmp_path, keep_audit_days=days)).sweep_when_due()
    entries, _ = either_store.audit.page(AuditFilter())
    assert [entry.action for entry in entries] == left
    assert chain_of(entries[::-1]).breaks == []
