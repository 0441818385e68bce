"""Outcomes on disk: kept until the store has answered, recorded by whoever finds them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from assay.service.store.fleet import lease_owner
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.store import Store
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.outcome_spool import ABANDONED_SECONDS, Spool
from assay.workers.supervision.reaper import Reaper
from tests.support.jobs import claim, outcome, planned
from tests.support.workers import ended, settings, supervising

ME = lease_owner.worker_id(0)
OTHER_MACHINE = "elsewhere:k:1:2:0"
DEAD = ":".join([*ME.split(":")[:2], "999999999", "1", "0"])


def ledger(store: Store) -> DirectLedger:
    return DirectLedger(store, settings(Path("never")))


def unreachable(*arguments: object) -> None:
    raise OperationalError("", {}, Exception("connection refused"))


def left_behind(
    store: Store,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    identity: str,
    *,
    worker: str = ME,
    lease_seconds: float = 60,
    name: str = "",
) -> Path:
    """The file of an outcome that its worker could not record."""
    job_id = planned(store, 1, name=name)
    held = claim(store, worker, lease_seconds=lease_seconds, warm_job=job_id)
    with monkeypatch.context() as patch:
        patch.setattr(store.shards, "finish", unreachable)
        with pytest.raises(OperationalError):
            Spool(folder, ledger(store), identity).record(held, outcome(held, extra={"note": 1}))
    (path,) = folder.glob(f"{held.shard_id}-*")
    return path


def test_a_recorded_outcome_leaves_no_file(store: Store, tmp_path: Path) -> None:
    planned(store, 1)
    held = claim(store)
    finished = Spool(tmp_path / "spool", ledger(store), ME).record(held, outcome(held))
    assert finished is not None
    assert finished.job_done
    assert list((tmp_path / "spool").iterdir()) == []


def test_the_file_is_there_before_the_store_is_asked(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(store, 1)
    held = claim(store)
    seen: list[str] = []
    monkeypatch.setattr(
        store.shards, "finish", lambda *a: seen.extend(p.name for p in (tmp_path / "spool").iterdir())
    )
    Spool(tmp_path / "spool", ledger(store), ME).record(held, outcome(held))
    assert seen == [f"{held.shard_id}-{held.fence}.json"]


@pytest.mark.parametrize("whose", [ME, DEAD], ids=["me", "dead"])
def test_own_and_dead_workers_files_are_recorded_whole(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    path = left_behind(store, tmp_path / "spool", monkeypatch, whose)
    ((recorded, finished),) = Spool(tmp_path / "spool", ledger(store), ME).flush()
    assert finished.evaluation_done
    assert not path.exists()
    (row,) = store.results.outcomes(recorded.job_id, 0)
    assert row == outcome(recorded, extra={"note": 1})


def test_other_workers_files_are_left_to_them_until_they_are_old(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced container has another host name: the end of its process is invisible."""
    path = left_behind(store, tmp_path / "spool", monkeypatch, OTHER_MACHINE)
    spool = Spool(tmp_path / "spool", ledger(store), ME)
    assert list(spool.flush()) == []
    assert path.exists()
    old = path.stat().st_mtime - ABANDONED_SECONDS - 1
    os.utime(path, (old, old))
    assert len(list(spool.flush())) == 1
    assert not path.exists()


def test_a_database_that_is_still_away_keeps_the_file(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left_behind(store, tmp_path / "spool", monkeypatch, ME)
    with monkeypatch.context() as patch:
        patch.setattr(store.shards, "finish", unreachable)
        with pytest.raises(OperationalError):
            list(Spool(tmp_path / "spool", ledger(store), ME).flush())
    assert path.exists()


def test_an_expired_unclaimed_lease_is_no_reason_to_measure_again(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(either_store, tmp_path / "spool", monkeypatch, ME)
    assert either_store.shards.expire(dead_owners=[ME]) == 1
    ((recorded, finished),) = Spool(tmp_path / "spool", ledger(either_store), ME).flush()
    assert finished.job_done
    assert {s.state for s in either_store.shards.of(recorded.job_id)} == {"done"}
    assert either_store.shards.claim("next", ["cpu"], lease_seconds=60) is None


def test_a_shard_that_was_claimed_again_refuses_the_old_outcome(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left_behind(either_store, tmp_path / "spool", monkeypatch, ME)
    assert either_store.shards.expire(dead_owners=[ME]) == 1
    theirs = claim(either_store, "next")
    assert list(Spool(tmp_path / "spool", ledger(either_store), ME).flush()) == []
    assert not path.exists()
    assert either_store.results.outcomes(theirs.job_id, 0) == []
    assert either_store.shards.finish(theirs, outcome(theirs)) is not None


def test_a_canceled_job_takes_no_outcome_of_a_shard_that_was_put_back(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(store, tmp_path / "spool", monkeypatch, ME)
    (row,) = store.shards.running()
    assert store.shards.expire(dead_owners=[ME]) == 1
    assert store.jobs.cancel(row.job_id).state == "canceled"
    assert list(Spool(tmp_path / "spool", ledger(store), ME).flush()) == []
    assert store.jobs.get(row.job_id).state == "canceled"


@pytest.mark.parametrize(
    "damage", ["", "{", '{"owner": 1}', "[]", '{"owner": "", "claim": {}, "outcome": {}}']
)
def test_a_damaged_file_is_set_aside(store: Store, tmp_path: Path, damage: str) -> None:
    spool = Spool(tmp_path / "spool", ledger(store), ME)
    path = tmp_path / "spool" / "shard-1.json"
    path.write_text(damage)
    os.utime(path, (0, 0))
    assert list(spool.flush()) == []
    assert [p.name for p in (tmp_path / "spool").iterdir()] == ["shard-1.bad"]
    assert path.with_suffix(".bad").read_text() == damage


def test_an_outcome_of_another_shard_is_set_aside(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left_behind(store, tmp_path / "spool", monkeypatch, ME)
    body = json.loads(path.read_text())
    body["outcome"]["number"] = 5
    path.write_text(json.dumps(body))
    assert list(Spool(tmp_path / "spool", ledger(store), ME).flush()) == []
    assert path.with_suffix(".bad").exists()


def test_half_written_files_of_killed_workers_go_away(store: Store, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", ledger(store), ME)
    fresh, old = tmp_path / "spool" / "a.1.part", tmp_path / "spool" / "b.2.part"
    for path in (fresh, old):
        path.touch()
    os.utime(old, (0, 0))
    assert list(spool.flush()) == []
    assert fresh.exists()
    assert not old.exists()


def test_a_full_disk_does_not_keep_an_outcome_from_the_database(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(store, 1)
    held = claim(store)
    spool = Spool(tmp_path / "spool", ledger(store), ME)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert spool.record(held, outcome(held)) is not None


@pytest.mark.parametrize("put_back", [False, True], ids=["its lease ran out", "it was put back"])
def test_another_machines_file_is_recorded_once_its_claim_has_run_out(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put_back: bool
) -> None:
    """The first worker records it, long before the file is old; otherwise it would be measured again."""
    path = left_behind(
        either_store, tmp_path / "spool", monkeypatch, OTHER_MACHINE, worker=OTHER_MACHINE, lease_seconds=-1
    )
    if put_back:
        assert either_store.shards.expire() == 1
    ((recorded, finished),) = Spool(tmp_path / "spool", ledger(either_store), ME).flush()
    assert finished.job_done
    assert not path.exists()
    assert len(either_store.results.outcomes(recorded.job_id, 0)) == 1


def test_another_machines_file_whose_shard_was_claimed_again_waits_and_is_refused(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left_behind(
        either_store, tmp_path / "spool", monkeypatch, OTHER_MACHINE, worker=OTHER_MACHINE, lease_seconds=-1
    )
    assert either_store.shards.expire() == 1
    theirs = claim(either_store, "next", lease_seconds=-1)
    spool = Spool(tmp_path / "spool", ledger(either_store), ME)
    assert list(spool.flush()) == []
    assert path.exists()
    os.utime(path, (0, 0))
    assert list(spool.flush()) == []
    assert not path.exists()
    assert either_store.results.outcomes(theirs.job_id, 0) == []


def test_a_replaced_containers_outcome_is_not_measured_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with another name finds it; its own evaluator would never answer."""
    path = left_behind(
        store,
        tmp_path / "spool",
        monkeypatch,
        OTHER_MACHINE,
        worker=OTHER_MACHINE,
        lease_seconds=-1,
        name="evaluate:hang",
    )
    job_id = json.loads(path.read_text())["claim"]["job_id"]
    Reaper(store, settings(tmp_path), device_classes=("cpu",)).sweep()
    (shard,) = (s for s in store.shards.of(job_id) if s.kind == "evaluate")
    assert str(shard.state) == "queued"
    with supervising(store, settings(tmp_path), count=2):
        ended(store, job_id)
    assert len(store.results.outcomes(job_id, 0)) == 1
    assert not path.exists()


def test_two_that_find_the_same_file_record_it_once(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(either_store, tmp_path / "spool", monkeypatch, DEAD)
    real, others = either_store.shards.finish, []

    def finish(held: Claim, row: OutcomeRow) -> object:
        with monkeypatch.context() as patch:  # another worker, between our reading and our recording
            patch.setattr(either_store.shards, "finish", real)
            others.extend(Spool(tmp_path / "spool", ledger(either_store), "another").flush())
        return real(held, row)

    monkeypatch.setattr(either_store.shards, "finish", finish)
    ours = list(Spool(tmp_path / "spool", ledger(either_store), ME).flush())
    ((recorded, finished),) = others
    assert finished.job_done
    assert ours == others, "both hear what it completed, so that one of them merges, whoever dies"
    assert len(either_store.results.outcomes(recorded.job_id, 0)) == 1


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_file_that_cannot_be_read_now_is_left_and_stops_no_other(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    first = left_behind(store, tmp_path / "spool", monkeypatch, ME)
    left_behind(store, tmp_path / "spool", monkeypatch, ME)
    spool, real = Spool(tmp_path / "spool", ledger(store), ME), Path.read_text

    def read_text(path: Path) -> str:
        if path == first:
            raise OSError(number, os.strerror(number))
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", read_text)
        assert len(list(spool.flush())) == 1
    assert list((tmp_path / "spool").iterdir()) == [first]
    assert len(list(spool.flush())) == 1


def test_a_file_that_cannot_be_removed_is_recorded_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(store, 1)
    held = claim(store)
    spool = Spool(tmp_path / "spool", ledger(store), ME)

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        finished = spool.record(held, outcome(held))
        assert list(spool.flush()) == [(held, finished)], "said again, until the job has ended"
    assert list(spool.flush()) == [(held, finished)]
    assert list((tmp_path / "spool").iterdir()) == []
    assert len(store.results.outcomes(held.job_id, 0)) == 1


def test_a_damaged_file_that_another_worker_has_set_aside_is_no_matter(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool", ledger(store), ME)
    (tmp_path / "spool" / "shard-1.json").write_text("{")
    real = Path.replace

    def twice(path: Path, target: Path) -> Path:
        real(path, target)
        return real(path, target)

    monkeypatch.setattr(Path, "replace", twice)
    assert list(spool.flush()) == []
    assert [p.name for p in (tmp_path / "spool").iterdir()] == ["shard-1.bad"]


def test_a_file_is_written_once_however_often_the_database_is_asked(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its age must tell how long its owner has been cut off."""
    planned(store, 1)
    held, spool = claim(store), Spool(tmp_path / "spool", ledger(store), ME)
    with monkeypatch.context() as patch:
        patch.setattr(store.shards, "finish", unreachable)
        with pytest.raises(OperationalError):
            spool.record(held, outcome(held))
        (path,) = (tmp_path / "spool").iterdir()
        os.utime(path, (1, 1))
        with pytest.raises(OperationalError):
            spool.record(held, outcome(held))
        assert path.stat().st_mtime == 1
    assert spool.record(held, outcome(held)) is not None


def test_an_outcome_whose_file_is_lost_is_refused_and_its_shard_goes_back(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a node's `finish`, which sends the files that the outcome names."""
    path = left_behind(store, tmp_path / "spool", monkeypatch, ME)

    def send(claim: Claim, row: OutcomeRow) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", str(tmp_path / "a.csv"))

    monkeypatch.setattr(store.shards, "finish", send)
    assert list(Spool(tmp_path / "spool", ledger(store), ME).flush()) == []
    assert not path.exists()
    assert claim(store, "another").shard_id == path.name[: -len("-1.json")]
    ((job,), _) = store.jobs.page()
    assert "a file of the outcome was lost on its worker: a.csv" in job.message
