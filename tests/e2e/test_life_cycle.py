"""Jobs through the real service, in all forms: HTTP, database, supervisors, evaluators; nothing is faked."""

from __future__ import annotations

import math
from pathlib import Path

import httpx
import pytest

from assay.service.client import AssayClient
from assay.service.client.transport import authorization
from assay.service.contract.errors import InvalidSpec, InvalidState, NoResults
from tests.e2e.jobs import SHAPE, attacking, finished, outcomes, pgd, rows, training, weights
from tests.e2e.running import RunningService, wait_for

HELD_OUT = 355
GRID = [
    {"name": "clean"},
    {"name": "uniform_noise"},
    {"name": "fgsm", "params": {"epsilon": "4/255"}},
    pgd("8/255"),
]
# Long enough to be interrupted.
LONG = [pgd("1/255", steps=60), pgd("2/255", steps=60), pgd("4/255", steps=60), pgd("8/255", steps=60)]


@pytest.mark.costly
def test_another_worker_computes_shards_again(shared: RunningService, trained: str) -> None:
    client = shared.client
    execution = {"device": "cpu", "batch_size": 32, "repeat": 0.3}
    spec = attacking(trained, GRID[1:], execution=execution, save_adversarial=True, limit=96)
    job = finished(client, client.submit(spec).id)
    results = client.results(job.id)
    assert results.provenance is not None
    found, shards = results.provenance.repeated, results.provenance.times["shards"]
    assert found is not None
    assert found["equal"] == found["other_workers"] == found["shards"] == math.ceil(0.3 * shards)
    assert found["not_compared"] == {}
    assert not [again for state in shared.worker_states for again in state.glob("artifacts/.again-*")]
    client.dry_run(training(execution={**execution, "repeat": 0}))
    with pytest.raises(InvalidSpec) as refused:
        client.submit(training(execution=execution))
    assert "execution.repeat" in str(refused.value)


def test_train_then_attack_then_compare(shared: RunningService, trained: str, tmp_path: Path) -> None:
    client = shared.client
    sources = {"symvit": trained, "rpc_symvit": client.submit(training(epochs=15, model="rpc_symvit")).id}
    attacks = {
        name: client.submit(attacking(source, GRID, model=name)).id for name, source in sources.items()
    }
    for name, job_id in attacks.items():
        job = finished(client, job_id)
        assert job.progress.done == job.progress.total == 4 * HELD_OUT, name
        results = client.results(job_id)
        assert results.complete
        assert [e.name for e in results.evaluations] == ["clean", "uniform_noise", "fgsm", "pgd"]
        top1 = [e.metrics["top1"] for e in results.evaluations]
        assert all(m.value is not None and m.ci_low <= m.value <= m.ci_high for m in top1)
        assert top1[0].value > 0.5
        assert top1[3].value <= top1[0].value
        assert results.provenance is not None
        assert results.provenance.weights_sha256 == weights(client, sources[name])
        assert results.provenance.data_sha256.keys() == {"digits"}
        source = client.results(sources[name]).provenance
        assert source is not None
        assert source.data_sha256["digits"] == results.provenance.data_sha256["digits"]
        assert source.data_sha256["digits (training split)"] != source.data_sha256["digits"]
        tables = outcomes(client, job_id, tmp_path / name)
        clean, attacked = rows(tables["outcomes-000-clean.csv"]), rows(tables["outcomes-003-pgd.csv"])
        assert sum(int(row["correct"]) for row in clean) == round(HELD_OUT * top1[0].value)
        assert sum(int(row["forward"]) for row in attacked) == results.evaluations[3].forward_passes
        assert [row["clean_correct"] for row in attacked] == [row["correct"] for row in clean]
    comparison = client.compare(list(attacks.values()))
    tested = [row for row in comparison["rows"] if row["metric"] == "top1"]
    assert len(tested) == 4
    assert all(0 <= row["test"]["p_value"] <= 1 for row in tested)


@pytest.mark.costly
def test_paper_protocol_and_library_backend(shared: RunningService, trained: str) -> None:
    client = shared.client
    library = {"name": "pgd", "params": {"epsilon": "8/255", "backend": "cleverhans"}}
    spec = attacking(trained, [pgd("8/255"), library], protocol="paper", limit=50)
    job_id = client.submit(spec).id
    finished(client, job_id)
    native, cleverhans = client.results(job_id).evaluations
    assert {native.protocol, cleverhans.protocol} == {"paper"}
    assert (native.backend, cleverhans.backend) == ("native", "cleverhans")
    assert native.metrics["top1"].n == 50
    assert abs(native.metrics["top1"].value - cleverhans.metrics["top1"].value) <= 0.02
    assert "subset" in {w.code for w in native.warnings}


def measured(client: AssayClient, job_id: str) -> list[str]:
    """The names of the evaluations that a running job has results of."""
    try:
        return [evaluation.name for evaluation in client.results(job_id).evaluations]
    except NoResults:
        return []


@pytest.mark.costly
def test_cancel_stops_the_work_and_retry_keeps_what_was_measured(shared: RunningService) -> None:
    # Started anew: an evaluator that has checked an upload of an earlier test stays for half a minute.
    shared.stop()
    client = shared.start().client
    job_id = client.submit(attacking(None, [{"name": "clean"}, *LONG])).id
    # Two workers: an attack may be measured before the clean accuracy is.
    wait_for(lambda: "clean" in measured(client, job_id), 120)
    wait_for(lambda: client.job(job_id).progress.done > HELD_OUT + 40, 120)
    assert client.cancel(job_id).state in {"canceling", "canceled"}
    # `test_storm.py` holds the contract's 20 s.
    wait_for(lambda: client.job(job_id).state == "canceled", 120)
    wait_for(lambda: not shared.evaluators(), 120)
    partial = client.results(job_id)
    assert not partial.complete
    assert "clean" in [e.name for e in partial.evaluations]
    with pytest.raises(InvalidState):
        client.cancel(job_id)
    done = client.job(job_id).progress.done
    retried = client.retry(job_id)
    assert retried.attempt == 2
    finished(client, job_id)
    assert done >= HELD_OUT
    assert client.results(job_id).complete


@pytest.mark.costly
def test_timeout_ends_a_running_job(shared: RunningService) -> None:
    client = shared.client
    job_id = client.submit(attacking(None, LONG * 5, timeout_seconds=1)).id
    assert client.wait(job_id, timeout_seconds=120).state == "timed_out"


@pytest.mark.costly
def test_a_failed_training_fails_what_waits_for_it(shared: RunningService) -> None:
    client = shared.client
    # Both workers are busy, so that the second job is posted before the first one fails.
    blockers = [client.submit(attacking(None, LONG, priority=9)).id for _ in range(2)]
    spec = training() | {"data": {"name": "image_folder", "params": {"folder": "pictures"}}}
    source = client.submit(spec).id
    dependent = client.submit(attacking(source, [{"name": "clean"}]) | {"data": spec["data"]}).id
    assert client.job(dependent).state == "waiting"
    for blocker in blockers:
        client.cancel(blocker)
    failed = client.wait(source, timeout_seconds=120)
    assert failed.state == "failed"
    assert failed.error.type == "data_missing"
    assert "pictures" in failed.error.message
    ended = client.wait(dependent, timeout_seconds=120)
    assert (ended.state, ended.error.type) == ("failed", "dependency_failed")
    with pytest.raises(NoResults):
        client.results(dependent)
    with pytest.raises(InvalidSpec) as caught:
        client.submit(attacking(source, [{"name": "clean"}]) | {"data": spec["data"]})
    assert caught.value.details[0].loc == ["model", "weights", "job"]


def test_bad_specs_name_the_field(shared: RunningService) -> None:
    client = shared.client
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
    headers = {"content-type": "application/json", **authorization(shared.key)}
    answer = httpx.post(f"{client.url}/api/v1/jobs", content=b'{"kind": NaN}', headers=headers)
    assert answer.status_code in {400, 422}
    assert answer.json()["error"]["type"] in {"malformed_json", "invalid_spec"}


# One form is enough: it is the evaluator that knows timm.
@pytest.mark.costly
@pytest.mark.parametrize("mode", ["embedded"], indirect=True)
def test_a_timm_model_by_name(shared: RunningService) -> None:
    spec = attacking(None, [{"name": "clean"}, {"name": "fgsm"}], limit=8)
    spec["model"] = {"name": "timm", "params": {"architecture": "resnet10t"}}
    spec["execution"]["batch_size"] = 8
    job_id = shared.client.submit(spec).id
    finished(shared.client, job_id)
    clean = shared.client.results(job_id).evaluations[0]
    assert clean.metrics["top1"].n == 8
    assert "untrained_weights" in {w.code for w in clean.warnings}
