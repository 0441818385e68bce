"""The reaper takes back what is lost and merges what was not merged, and leaves the rest alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from assay.service.store import lease_owner
from assay.service.store.store import Store
from assay.workers.supervision.reaper import Reaper
from tests.support.jobs import claim, planned
from tests.support.workers import settings, submit, supervising, wait_for

ME = lease_owner.identity(0)
DEAD = ":".join([*ME.split(":")[:2], "999999999", "1", "0"])


def states(store: Store, job_id: str) -> list[str]:
    return [str(s.state) for s in store.shards.of(job_id) if s.kind == "evaluate"]


def test_a_dead_owner_loses_its_shard_before_its_lease_is_over(either_store: Store, tmp_path: Path) -> None:
    job_id = planned(either_store, 1)
    claim(either_store, DEAD, lease_seconds=3600)
    Reaper(either_store, settings(tmp_path), device_classes=("cpu",)).sweep()
    (shard,) = (s for s in either_store.shards.of(job_id) if s.kind == "evaluate")
    assert (str(shard.state), shard.losses, shard.failures) == ("queued", 1, 0)


@pytest.mark.parametrize("worker", [ME, "elsewhere:kernel:1:2:0"], ids=["me", "elsewhere"])
def test_living_and_unknown_owners_keep_theirs(store: Store, tmp_path: Path, worker: str) -> None:
    job_id = planned(store, 1)
    claim(store, worker)
    Reaper(store, settings(tmp_path), device_classes=("cpu",)).sweep()
    assert states(store, job_id) == ["running"]


def test_a_lease_that_ran_out_frees_the_shard(store: Store, tmp_path: Path) -> None:
    job_id = planned(store, 1)
    claim(store, "elsewhere:kernel:1:2:0", lease_seconds=-1)
    Reaper(store, settings(tmp_path), device_classes=("cpu",)).sweep()
    assert states(store, job_id) == ["queued"]


def test_overdue_jobs_time_out(store: Store, tmp_path: Path) -> None:
    job_id = planned(store, 1, timeout_seconds=-1)
    Reaper(store, settings(tmp_path), device_classes=("cpu",)).sweep()
    assert store.jobs.get(job_id).state == "timed_out"


def test_a_lost_merge_is_made_up_for(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, job_id = settings(tmp_path), submit(store, "shards=1", evaluations=2)
    monkeypatch.setattr("assay.workers.supervision.shard_run.merge_and_finish", lambda *a: None)
    with supervising(store, chosen):
        wait_for(lambda: store.jobs.ready_to_finish() == [job_id])
    reaper = Reaper(store, chosen, device_classes=("cpu",))
    reaper.sweep()
    assert store.jobs.get(job_id).state == "running", "most likely a supervisor is merging it just now"
    reaper.sweep()
    assert store.jobs.get(job_id).state == "succeeded"
    assert sorted(store.results.of(job_id)) == [0, 1]


def test_no_error_ends_the_reaper(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [OperationalError("", {}, Exception("away")), RuntimeError("a defect")]
    job_id = planned(store, 1)
    claim(store, DEAD)
    running = store.shards.running

    def flaky() -> object:
        if errors:
            raise errors.pop()
        return running()

    monkeypatch.setattr(store.shards, "running", flaky)
    reaper = Reaper(store, settings(tmp_path, sweep_seconds=0.01), device_classes=("cpu",))
    reaper.start()
    wait_for(lambda: states(store, job_id) == ["queued"])
    reaper.stop()
    reaper.join(30)
    assert not reaper.is_alive()
