"""Outcomes on disk: kept until the store has answered, recorded by whoever finds them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from service.store.session import Store
from tests.support.jobs import claim, outcome, planned
from workers import owner
from workers.spool import ABANDONED_SECONDS, Spool

ME = owner.identity(0)
OTHER_MACHINE = "elsewhere:k:1:2:0"
DEAD = ":".join([*ME.split(":")[:2], "999999999", "1", "0"])


def unreachable(*arguments: object) -> None:
    raise OperationalError("", {}, Exception("connection refused"))


def left_behind(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, identity: str, *, worker: str = ME
) -> Path:
    """The file of an outcome that its worker could not record."""
    planned(store, 1)
    held = claim(store, worker)
    with monkeypatch.context() as patch:
        patch.setattr(store.shards, "finish", unreachable)
        with pytest.raises(OperationalError):
            Spool(folder, store, identity).record(held, outcome(held, extra={"note": 1}))
    (path,) = folder.iterdir()
    return path


def test_a_recorded_outcome_leaves_no_file(store: Store, tmp_path: Path) -> None:
    planned(store, 1)
    held = claim(store)
    finished = Spool(tmp_path / "spool", store, ME).record(held, outcome(held))
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
    Spool(tmp_path / "spool", store, ME).record(held, outcome(held))
    assert seen == [f"{held.shard_id}-{held.fence}.json"]


@pytest.mark.parametrize("whose", [ME, DEAD], ids=["me", "dead"])
def test_own_and_dead_workers_files_are_recorded_whole(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    path = left_behind(store, tmp_path / "spool", monkeypatch, whose)
    ((recorded, finished),) = Spool(tmp_path / "spool", store, ME).flush()
    assert finished.evaluation_done
    assert not path.exists()
    (row,) = store.results.outcomes(recorded.job_id, 0)
    assert row == outcome(recorded, extra={"note": 1})


def test_other_workers_files_are_left_to_them_until_they_are_old(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that was replaced has another host name: nobody can see that its process is gone."""
    path = left_behind(store, tmp_path / "spool", monkeypatch, OTHER_MACHINE)
    spool = Spool(tmp_path / "spool", store, ME)
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
            list(Spool(tmp_path / "spool", store, ME).flush())
    assert path.exists()


def test_an_expired_lease_that_nobody_claimed_is_no_reason_to_measure_again(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(either_store, tmp_path / "spool", monkeypatch, ME)
    assert either_store.shards.expire(dead_owners=[ME]) == 1
    ((recorded, finished),) = Spool(tmp_path / "spool", either_store, ME).flush()
    assert finished.job_done
    assert {s.state for s in either_store.shards.of(recorded.job_id)} == {"done"}
    assert either_store.shards.claim("next", ["cpu"], lease_seconds=60) is None


def test_a_shard_that_was_claimed_again_refuses_the_old_outcome(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left_behind(either_store, tmp_path / "spool", monkeypatch, ME)
    assert either_store.shards.expire(dead_owners=[ME]) == 1
    theirs = claim(either_store, "next")
    assert list(Spool(tmp_path / "spool", either_store, ME).flush()) == []
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
    assert list(Spool(tmp_path / "spool", store, ME).flush()) == []
    assert store.jobs.get(row.job_id).state == "canceled"


@pytest.mark.parametrize(
    "damage", ["", "{", '{"owner": 1}', "[]", '{"owner": "", "claim": {}, "outcome": {}}']
)
def test_a_damaged_file_is_set_aside(store: Store, tmp_path: Path, damage: str) -> None:
    spool = Spool(tmp_path / "spool", store, ME)
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
    assert list(Spool(tmp_path / "spool", store, ME).flush()) == []
    assert path.with_suffix(".bad").exists()


def test_half_written_files_of_killed_workers_go_away(store: Store, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", store, ME)
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
    spool = Spool(tmp_path / "spool", store, ME)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert spool.record(held, outcome(held)) is not None
