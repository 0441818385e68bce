"""Jobs through the real service: HTTP, SQLite, supervisors, evaluator processes; nothing is faked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.e2e.conftest import RunningService, kill_group, processes, wait_for
from tests.e2e.jobs import SHAPE, attacking, finished, outcomes, pgd, rows, training, weights

from service.contract.errors import InvalidSpec, InvalidState, NoResults

Start = Callable[..., RunningService]

# Short shards: several of them in every evaluation.
SHARDED = {"ASSAY_SHARD_SECONDS": "0.02"}
GRID = [{"name": "clean"}, {"name": "uniform_noise"}, {"name": "fgsm", "params": {"epsilon": "4/255"}}, pgd("8/255")]
# Long enough to be interrupted: about ten seconds of work on one core.
LONG = [pgd("1/255", steps=60), pgd("2/255", steps=60), pgd("4/255", steps=60), pgd("8/255", steps=60)]


def test_train_then_attack_then_compare(service: Start, tmp_path: Path) -> None:
    """The main path: two models trained, attacked and compared."""
    running = service(ASSAY_WORKERS="2")
    client = running.client
    trained = {name: client.submit(training(epochs=20, model=name)).id for name in ("symvit", "rpc_symvit")}
    attacked = {name: client.submit(attacking(trained[name], GRID, model=name)).id for name in trained}
    waiting = client.job(attacked["symvit"])
    assert waiting.state in {"waiting", "queued", "starting", "running"}
    for name, job_id in attacked.items():
        job = finished(client, job_id)
        assert job.progress.done == job.progress.total == 4 * 355, name
        results = client.results(job_id)
        assert results.complete
        assert [e.name for e in results.evaluations] == ["clean", "uniform_noise", "fgsm", "pgd"]
        top1 = [e.metrics["top1"] for e in results.evaluations]
        assert all(m.value is not None and m.ci_low <= m.value <= m.ci_high for m in top1)
        assert top1[0].value > 0.5
        assert top1[3].value <= top1[0].value
        assert results.provenance is not None
        assert results.provenance.weights_sha256 == client.results(trained[name]).provenance.weights_sha256
        assert results.provenance.data_sha256.keys() == {"digits"}
        tables = outcomes(client, job_id, tmp_path / name)
        assert sum(int(r["correct"]) for r in rows(tables["outcomes-000-clean.csv"])) == round(355 * top1[0].value)
        assert sum(int(r["forward"]) for r in rows(tables["outcomes-003-pgd.csv"])) == results.evaluations[3].forward_passes
    comparison = client.compare(list(attacked.values()))
    tested = [row for row in comparison["rows"] if row["metric"] == "top1"]
    assert len(tested) == 4
    assert all(0 <= row["test"]["p_value"] <= 1 for row in tested)


def test_same_bits_with_one_worker_two_workers_and_kills(service: Start, tmp_path: Path) -> None:
    """Outcomes depend on the job alone: not on the number of workers, killed evaluators or a killed service."""
    one = service("one", ASSAY_WORKERS="1", **SHARDED)
    source = one.client.submit(training(epochs=2)).id
    undisturbed = one.client.submit(attacking(source, LONG)).id
    finished(one.client, undisturbed)
    expected = outcomes(one.client, undisturbed, tmp_path / "one")
    assert len(expected) == 4

    two = service("two", ASSAY_WORKERS="2", ASSAY_LEASE_SECONDS="5", **SHARDED)
    source = two.client.submit(training(epochs=2)).id
    disturbed = two.client.submit(attacking(source, LONG)).id
    wait_for(lambda: two.client.job(disturbed).progress.done > 100, 120)
    kill_group(two.evaluators()[0])
    wait_for(lambda: two.client.job(disturbed).progress.done > 300, 120)
    before = two.evaluators()
    two.kill()
    wait_for(lambda: not set(before) & set(processes()), 20)
    two.start()
    job = finished(two.client, disturbed)
    assert job.attempt == 1
    assert outcomes(two.client, disturbed, tmp_path / "two") == expected


def test_killed_training_resumes_with_the_same_weights(service: Start) -> None:
    """A checkpoint, not a new start: and the weights are those of an undisturbed run, bit for bit."""
    spec = training(epochs=40)
    calm = service("calm")
    expected = calm.client.submit(spec).id

    rough = service("rough", ASSAY_CHECKPOINT_SECONDS="0.3")
    job_id = rough.client.submit(spec).id
    wait_for(lambda: rough.client.job(job_id).progress.done > 150, 120)
    kill_group(rough.evaluators()[0])
    wait_for(lambda: rough.client.job(job_id).progress.done > 400, 120)
    before = rough.evaluators()
    rough.kill()
    wait_for(lambda: not set(before) & set(processes()), 20)
    rough.start()
    finished(rough.client, job_id)
    finished(calm.client, expected)
    assert weights(rough.client, job_id) == weights(calm.client, expected)


def test_cancel_stops_the_work_and_retry_keeps_what_was_measured(service: Start) -> None:
    """Cancel ends the evaluator within the promised time; retry goes on from the finished evaluations."""
    running = service(**SHARDED)
    client = running.client
    job_id = client.submit(attacking(None, [{"name": "clean"}, *LONG], model="symvit")).id
    wait_for(lambda: client.job(job_id).progress.done > 400, 120)
    begun = time.monotonic()
    assert client.cancel(job_id).state in {"canceling", "canceled"}
    wait_for(lambda: client.job(job_id).state == "canceled", 20)
    wait_for(lambda: not running.evaluators(), 20)
    assert time.monotonic() - begun < 20, "the contract's promise, not a benchmark"
    partial = client.results(job_id)
    assert not partial.complete
    assert partial.evaluations[0].name == "clean"
    with pytest.raises(InvalidState):
        client.cancel(job_id)
    done = client.job(job_id).progress.done
    retried = client.retry(job_id)
    assert (retried.attempt, retried.state) == (2, "queued")
    finished(client, job_id)
    assert done >= 355
    assert client.results(job_id).complete


def test_timeout_ends_a_running_job(service: Start) -> None:
    """`timeout_seconds` counts from the start."""
    client = service(**SHARDED).client
    job_id = client.submit(attacking(None, LONG * 3, timeout_seconds=2)).id
    assert client.wait(job_id, timeout_seconds=60).state == "timed_out"


def test_a_failed_training_fails_what_waits_for_it(service: Start, tmp_path: Path) -> None:
    """Missing data fails a job with what was wanted; its dependent says dependency_failed."""
    (tmp_path / "root" / "pictures").mkdir(parents=True)
    client = service(ASSAY_DATA_ROOT=str(tmp_path / "root")).client
    spec = training() | {"data": {"name": "image_folder", "params": {"folder": "pictures"}}}
    source = client.submit(spec).id
    waiting = client.submit(attacking(source, [{"name": "clean"}]) | {"data": spec["data"]}).id
    failed = client.wait(source, timeout_seconds=60)
    assert failed.state == "failed"
    assert failed.error.type == "data_missing"
    assert "pictures" in failed.error.message
    dependent = client.wait(waiting, timeout_seconds=60)
    assert (dependent.state, dependent.error.type) == ("failed", "dependency_failed")
    with pytest.raises(NoResults):
        client.results(waiting)


def test_paper_protocol_and_library_backend(service: Start) -> None:
    """Both are offered by name and say so in the result."""
    client = service().client
    source = client.submit(training()).id
    library = {"name": "pgd", "params": {"epsilon": "8/255", "backend": "cleverhans"}}
    job_id = client.submit(attacking(source, [pgd("8/255"), library], protocol="paper", limit=50)).id
    finished(client, job_id)
    native, cleverhans = client.results(job_id).evaluations
    assert {native.protocol, cleverhans.protocol} == {"paper"}
    assert (native.backend, cleverhans.backend) == ("native", "cleverhans")
    assert native.metrics["top1"].n == 50
    assert "subset" in {w.code for w in native.warnings}
    assert "library_backend" in {w.code for w in cleverhans.warnings}


def test_bad_specs_name_the_field(service: Start) -> None:
    """Every wrong field of a body, with what is allowed and the nearest name."""
    client = service().client
    spec = attacking(None, [{"name": "pgd", "params": {"epsilonn": 0.1, "steps": 0}}])
    spec["model"]["params"] = SHAPE | {"width": 33}
    spec["data"]["name"] = "digit"
    with pytest.raises(InvalidSpec) as caught:
        client.submit(spec)
    details = {tuple(d.loc): d for d in caught.value.details}
    assert details["evaluations", 0, "params", "epsilonn"].nearest == "epsilon"
    assert details["data", "name"].nearest == "digits"
    assert ("evaluations", 0, "params", "steps") in details
    assert any("heads must divide width" in d.message for d in caught.value.details)
    answer = httpx.post(
        f"{client.url}/api/v1/jobs", content=b'{"kind": NaN}', headers={"content-type": "application/json"}
    )
    assert answer.status_code in {400, 422}
    assert answer.json()["error"]["type"] in {"malformed_json", "invalid_spec"}


def test_two_services_do_not_share_a_state_folder(service: Start) -> None:
    """The second one says who has it and ends."""
    first = service("shared")
    with pytest.raises(AssertionError, match=str(first.pid)):
        service("shared")
