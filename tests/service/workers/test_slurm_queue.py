"""Slurm's commands, by a fake on PATH."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.errors import InvalidSpec
from assay.service.workers import slurm_queue
from assay.service.workers.slurm import SlurmFleet
from assay.service.workers.slurm_queue import SlurmJobs, SlurmUnavailable
from tests.support.fake_slurm import FakeSlurm

SCRIPT = SlurmFleet(partition="gpu", max=4, name="mine").script({})


def test_it_submits_reads_and_cancels_its_own_jobs_alone(fake_slurm: FakeSlurm) -> None:
    fake_slurm.write([["7", "RUNNING", "None", "other"], ["8", "PENDING", "Priority", "other"]])
    assert slurm_queue.jobs_of("mine") == SlurmJobs(0)
    assert slurm_queue.submit(SCRIPT, 3) == {"9": 3}
    assert (fake_slurm.folder / "script-9").read_text() == SCRIPT
    assert slurm_queue.jobs_of("mine") == SlurmJobs(0, ("9_1", "9_2", "9_3"))
    fake_slurm.start(1)  # the other's
    fake_slurm.start(1)
    assert slurm_queue.jobs_of("mine") == SlurmJobs(1, ("9_2", "9_3"), "Priority")
    slurm_queue.give_up(["9_1", "9_3"])  # one that runs by now stays
    assert [row[0] for row in fake_slurm.rows()] == ["7", "8", "9_1", "9_2"]


def test_large_numbers_are_several_arrays(fake_slurm: FakeSlurm) -> None:
    assert slurm_queue.submit(SCRIPT, 2001) == {"101": 1000, "102": 1000, "103": 1}
    assert len(fake_slurm.rows()) == 2001


def test_a_slurm_that_is_away_says_so(fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake_slurm.folder / "broken").touch()
    with pytest.raises(SlurmUnavailable, match="squeue: slurm_load_jobs error: Unable to contact"):
        slurm_queue.jobs_of("mine")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmUnavailable, match=r"sbatch: .*No such file"):
        slurm_queue.submit(SCRIPT, 1)


def test_the_key_of_the_controller_is_not_given_to_the_nodes(
    fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_KEY", "assay_of_an_administrator")
    monkeypatch.setenv("ASSAY_WORKER_KEY", "assay_of_a_worker")
    slurm_queue.submit(SCRIPT, 1)
    passed = (fake_slurm.folder / "variables").read_text().split()
    assert ("ASSAY_KEY" in passed, "ASSAY_WORKER_KEY" in passed) == (False, True)


def test_pending_jobs_of_other_options_are_stale(fake_slurm: FakeSlurm) -> None:
    slurm_queue.submit(SlurmFleet(partition="gpu", max=4, name="mine", idle=60).script({}), 2)
    slurm_queue.submit(SCRIPT, 1)
    early = ["7", "PENDING", "None", "mine", "assay-fleet:mine"]  # of an earlier version
    others = [["8", "PENDING", "None", "mine", text] for text in ("of a plug-in", "assay-fleet:mine-2:0")]
    fake_slurm.write([*fake_slurm.rows()[:3], early, *others])
    fake_slurm.start(1)  # what runs stays
    found = slurm_queue.jobs_of("mine", SCRIPT)
    assert (found.running, found.stale, len(found.pending)) == (1, ("101_2", "7"), 3)


def fleet(**given: Any) -> SlurmFleet:
    return SlurmFleet(**{"partition": "gpu", "max": 4, "shard_seconds": 60, **given})


@pytest.mark.parametrize(
    ("limit", "seconds", "fits"),
    [("1:00:00", 3450, True), ("1:00:00", 3451, False), ("30:00", 1650, True), ("30:00", 1651, False),
     ("2-00:00:00", 172650, True), ("2-00:00:00", 172651, False), ("infinite", 2_000_000, True)],
)  # fmt: skip
def test_a_worker_fits_into_the_partition(
    fake_slurm: FakeSlurm, limit: str, seconds: int, fits: bool
) -> None:
    (fake_slurm.folder / "partitions").write_text(f"gpu|{limit}\n")
    if fits:
        slurm_queue.check(fleet(max_seconds=seconds))
        return
    with pytest.raises(InvalidSpec) as raised:
        slurm_queue.check(fleet(max_seconds=seconds))
    (wrong,) = raised.value.details
    assert (wrong.loc, wrong.given, wrong.allowed) == (["--max-seconds"], seconds, f"at most {seconds - 1}")


def test_an_unknown_partition_is_refused(fake_slurm: FakeSlurm) -> None:
    with pytest.raises(InvalidSpec) as raised:
        slurm_queue.check(fleet(partition="cpu,gpus"))
    (wrong,) = raised.value.details
    assert (wrong.given, wrong.allowed, wrong.nearest) == ("gpus", ["cpu", "gpu"], "gpu")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("PartitionTimeLimit", "--max-seconds"),
        ("QOSMaxWallDurationPerJobLimit", "--max-seconds"),
        ("sbatch: error: Invalid generic resource (gres) specification", "--device cpu"),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", "--constraint"),
        ("Priority", ""),
    ],
)
def test_what_will_not_come_by_itself_has_a_remedy(said: str, told: str) -> None:
    found = slurm_queue.remedy(said)
    assert told in found
    assert bool(told) == bool(found)
