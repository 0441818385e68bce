"""Slurm's commands, by a fake on PATH."""

from __future__ import annotations

import pytest

from assay.service.workers import slurm_queue
from assay.service.workers.slurm import SlurmFleet
from assay.service.workers.slurm_queue import SlurmJobs, SlurmUnavailable
from tests.support.fake_slurm import FakeSlurm

SCRIPT = SlurmFleet(partition="gpu", max=4, name="mine").script({})


def test_it_submits_reads_and_cancels_its_own_jobs_alone(fake_slurm: FakeSlurm) -> None:
    fake_slurm.write([["7", "RUNNING", "None", "other"], ["8", "PENDING", "Priority", "other"]])
    assert slurm_queue.jobs_of("mine") == SlurmJobs(0)
    assert slurm_queue.submit(SCRIPT, 3) == ["9"]
    assert (fake_slurm.folder / "script-9").read_text() == SCRIPT
    assert slurm_queue.jobs_of("mine") == SlurmJobs(0, ("9_1", "9_2", "9_3"))
    fake_slurm.start(1)  # the other's
    fake_slurm.start(1)
    assert slurm_queue.jobs_of("mine") == SlurmJobs(1, ("9_2", "9_3"), "Priority")
    slurm_queue.give_up(["9_1", "9_3"])  # one that runs by now stays
    assert [row[0] for row in fake_slurm.rows()] == ["7", "8", "9_1", "9_2"]


def test_large_numbers_are_several_arrays(fake_slurm: FakeSlurm) -> None:
    assert slurm_queue.submit(SCRIPT, 2001) == ["101", "102", "103"]
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
