"""kill -9 in the middle of things: nothing is left behind, nothing is lost, and the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.jobs import attacking, finished, outcomes, pgd, training, weights
from tests.e2e.running import SHARDED, RunningService, kill, processes, wait_for

Start = Callable[..., RunningService]

LONG = [pgd("2/255", steps=50), pgd("4/255", steps=50), pgd("8/255", steps=50)]


@pytest.fixture(scope="module")
def calm(make_service: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One undisturbed worker."""
    service = make_service(tmp_path_factory.mktemp("calm") / "state", ASSAY_WORKERS="1", **SHARDED)
    yield service.start()
    service.close()


@pytest.fixture(scope="module")
def rough(make_service: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Two workers, which are killed; trainings checkpoint three times a second."""
    folder = tmp_path_factory.mktemp("rough")
    often = {"ASSAY_WORKERS": "2", "ASSAY_CHECKPOINT_SECONDS": "0.3"}
    service = make_service(folder / "state", **often, **SHARDED)
    yield service.start()
    service.close()


def crash_and_restart(running: RunningService, job_id: str) -> None:
    """kill -9 of the service at work: its evaluators must go with it; then start it again."""
    evaluators = set(wait_for(running.evaluators, 60))  # the last may have been killed just now
    assert running.client.job(job_id).state == "running", "too late: it would prove nothing"
    running.kill()
    wait_for(lambda: not evaluators & set(processes()), 120)
    running.start()


@pytest.mark.slow
def test_same_bits_with_one_worker_two_workers_and_kills(
    calm: RunningService, rough: RunningService, tmp_path: Path
) -> None:
    """Neither the number of workers nor a killed evaluator nor a killed service changes an outcome."""
    jobs = {}
    for running in (rough, calm):
        source = running.client.submit(training(epochs=2)).id
        jobs[running] = running.client.submit(attacking(source, LONG)).id
    disturbed = jobs[rough]
    wait_for(lambda: rough.client.job(disturbed).progress.done > 100, 120)
    kill(rough.evaluators()[0])
    wait_for(lambda: rough.client.job(disturbed).progress.done > 300, 120)
    crash_and_restart(rough, disturbed)
    assert finished(rough.client, disturbed).attempt == 1
    finished(calm.client, jobs[calm])
    expected = outcomes(calm.client, jobs[calm], tmp_path / "calm")
    assert len(expected) == len(LONG)
    assert outcomes(rough.client, disturbed, tmp_path / "rough") == expected


@pytest.mark.slow
def test_killed_training_resumes_with_the_same_weights(calm: RunningService, rough: RunningService) -> None:
    """Resumes from its checkpoint; the weights are bit-identical to those of an undisturbed run."""
    spec = training(epochs=50)
    expected = calm.client.submit(spec).id
    job_id = rough.client.submit(spec).id
    wait_for(lambda: rough.client.job(job_id).progress.done > 80, 120)
    assert checkpoints(rough, job_id), "there is something to resume from"
    for pid in rough.evaluators():
        kill(pid)
    wait_for(lambda: rough.client.job(job_id).progress.done > 200, 120)
    crash_and_restart(rough, job_id)
    finished(rough.client, job_id)
    assert "weights.safetensors" in rough.files.sizes(job_id)
    wait_for(lambda: not checkpoints(rough, job_id), 120)
    finished(calm.client, expected)
    assert weights(rough.client, job_id) == weights(calm.client, expected)


def checkpoints(running: RunningService, job_id: str) -> list[str]:
    return [name for name in running.files.sizes(job_id) if name.startswith("step-")]
