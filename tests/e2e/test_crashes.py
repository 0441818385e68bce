"""kill -9 in the middle of things: nothing is left behind, nothing is lost, and the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.e2e.jobs import attacking, finished, outcomes, pgd, training, weights
from tests.e2e.running import RunningService, kill, processes, wait_for

Start = Callable[..., RunningService]

LONG = [pgd("1/255", steps=60), pgd("2/255", steps=60), pgd("4/255", steps=60), pgd("8/255", steps=60)]
SHARDED = {"ASSAY_SHARD_SECONDS": "0.02"}


def crash_and_restart(running: RunningService) -> None:
    """kill -9 of the service: its evaluators must go with it; then start it again."""
    evaluators = set(running.evaluators())
    assert evaluators
    running.kill()
    wait_for(lambda: not evaluators & set(processes()), 20)
    running.start()


def test_same_bits_with_one_worker_two_workers_and_kills(start_service: Start, tmp_path: Path) -> None:
    """Neither the number of workers nor a killed evaluator nor a killed service changes an outcome."""
    one = start_service(tmp_path / "one", ASSAY_WORKERS="1", **SHARDED)
    two = start_service(tmp_path / "two", ASSAY_WORKERS="2", **SHARDED)
    jobs = {}
    for running in (two, one):
        source = running.client.submit(training(epochs=2)).id
        jobs[running] = running.client.submit(attacking(source, LONG)).id
    disturbed = jobs[two]
    wait_for(lambda: two.client.job(disturbed).progress.done > 100, 120)
    kill(two.evaluators()[0])
    wait_for(lambda: two.client.job(disturbed).progress.done > 300, 120)
    crash_and_restart(two)
    assert finished(two.client, disturbed).attempt == 1
    finished(one.client, jobs[one])
    expected = outcomes(one.client, jobs[one], tmp_path / "one-outcomes")
    assert len(expected) == len(LONG)
    assert outcomes(two.client, disturbed, tmp_path / "two-outcomes") == expected


def test_killed_training_resumes_with_the_same_weights(start_service: Start, tmp_path: Path) -> None:
    """From its checkpoint, not anew: and the weights are those of an undisturbed run, bit for bit."""
    spec = training(epochs=40)
    calm = start_service(tmp_path / "calm")
    expected = calm.client.submit(spec).id
    rough = start_service(tmp_path / "rough", ASSAY_CHECKPOINT_SECONDS="0.3")
    job_id = rough.client.submit(spec).id
    wait_for(lambda: rough.client.job(job_id).progress.done > 150, 120)
    assert list((rough.state / "artifacts" / job_id).glob("step-*")), "there is something to resume from"
    kill(rough.evaluators()[0])
    wait_for(lambda: rough.client.job(job_id).progress.done > 400, 120)
    crash_and_restart(rough)
    finished(rough.client, job_id)
    assert list((rough.state / "artifacts" / job_id).glob("weights.safetensors"))
    wait_for(lambda: not list((rough.state / "artifacts" / job_id).glob("step-*")), 10)
    finished(calm.client, expected)
    assert weights(rough.client, job_id) == weights(calm.client, expected)
