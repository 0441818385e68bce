"""A training in several processes, through the whole service: canceled, nothing of it is left."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.jobs import training
from tests.e2e.running import RunningService, command_line, processes, wait_for

RANK = "assay.workers.training.distributed.rank"


@pytest.mark.slow
def test_on_two_devices_it_runs_reports_and_is_canceled(tmp_path: Path) -> None:
    two = {"device": "cpu", "batch_size": 64, "devices": 2}
    with closing(RunningService(tmp_path / "state", ASSAY_DEVICES="2").start()) as running:
        job_id = running.client.submit(training(epochs=10_000, execution=two)).id
        wait_for(lambda: running.client.job(job_id).progress.done > 0, 180)
        job = running.client.job(job_id)
        assert (job.state, job.workers_online, job.progress.unit) == ("running", 1, "steps")
        assert job.progress.eta_seconds is not None
        at_work = {pid for pid in running._descendants() if RANK in command_line(pid)}
        assert len(at_work) >= 2
        running.client.cancel(job_id)
        wait_for(lambda: running.client.job(job_id).state == "canceled", 60)
        wait_for(lambda: not at_work & set(processes()), 20)
