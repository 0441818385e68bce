"""A training in several processes, through the whole service: canceled, nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.e2e.jobs import finished, training
from tests.e2e.running import RunningService, command_line, processes, wait_for

Start = Callable[..., RunningService]
TWO = {"device": "cpu", "batch_size": 64, "devices": 2}
RANK = "workers.jobs.rank"


def ranks(running: RunningService) -> list[int]:
    return [pid for pid in running._descendants() if RANK in command_line(pid)]


def test_on_two_devices_it_runs_reports_and_is_canceled(start_service: Start, tmp_path: Path) -> None:
    few = start_service(tmp_path / "state", ASSAY_DEVICES="2")
    job_id = few.client.submit(training(epochs=10_000, execution=TWO)).id
    wait_for(lambda: few.client.job(job_id).progress.done > 0, 180)
    job = few.client.job(job_id)
    assert (job.state, job.progress.unit) == ("running", "steps")
    assert job.progress.eta_seconds is not None
    at_work = set(ranks(few))
    assert len(at_work) >= 2
    few.client.cancel(job_id)
    wait_for(lambda: few.client.job(job_id).state == "canceled", 60)
    wait_for(lambda: not at_work & set(processes()), 20)


def test_a_worker_with_one_device_leaves_it_alone(start_service: Start, tmp_path: Path) -> None:
    one = start_service(tmp_path / "state")
    waiting = one.client.submit(training(epochs=1, execution=TWO)).id
    finished(one.client, one.client.submit(training(epochs=1)).id)
    job = one.client.job(waiting)
    assert (job.state, job.workers_online, job.message) == (
        "queued",
        0,
        "no worker is listening for this job",
    )
