"""Attacks through the real service, in all forms: the suite for a sign-off, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.errors import InvalidSpec, InvalidState
from assay.service.contract.results import StageBreakdown
from tests.e2e.jobs import SHAPE, attacking, finished, learning, outcomes, rows, training, weights
from tests.e2e.running import RunningService, wait_for

STAGES = ["apgd_ce", "apgd_t", "fab_t", "square"]
AUTOATTACK = {"name": "autoattack", "params": {"epsilon": "6/255", "queries": 50}}


# One form is enough: a suite is its evaluations before a form has a say.
@pytest.mark.costly
@pytest.mark.parametrize("mode", ["embedded"], indirect=True)
def test_the_standard_suite_gives_every_row_a_value_an_interval_and_its_warnings(
    shared: RunningService, trained: str
) -> None:
    client = shared.client
    job_id = client.submit(attacking(trained, [{"suite": "standard"}], limit=8)).id
    finished(client, job_id, seconds=300)
    results = client.results(job_id)
    names = [row.name for row in results.evaluations]
    assert {"clean", "uniform_noise", "fgsm", "pgd", "square", "spsa", "autoattack"} <= set(names)
    for row in results.evaluations:
        top1 = row.metrics["top1"]
        assert top1.n == 8
        assert top1.value is not None
        assert top1.ci_low <= top1.value <= top1.ci_high
        assert "subset" in {warning.code for warning in row.warnings}
        assert row.forward_passes >= 8
    clean, ensemble = results.evaluations[0], results.evaluations[names.index("autoattack")]
    assert clean.metrics["top1"].value > 0.5
    assert ensemble.metrics["top1"].value <= min(
        row.metrics["top1"].value for row in results.evaluations if row.params.get("epsilon") == "8/255"
    )
    assert "adaptive_attack_needed" in {warning.code for warning in ensemble.warnings}


@pytest.mark.costly
def test_autoattack_tells_its_stages_and_keeps_its_examples(
    shared: RunningService, trained: str, tmp_path: Path
) -> None:
    client = shared.client
    spec = attacking(trained, [AUTOATTACK], limit=16, save_adversarial=True)
    spec["execution"]["screening"] = "bfloat16"
    job_id = client.submit(spec).id
    finished(client, job_id)
    (row,) = client.results(job_id).evaluations
    stages = [part for part in row.breakdown if isinstance(part, StageBreakdown)]
    assert [stage.stage for stage in stages] == STAGES
    left = [stage.metrics["top1"].value for stage in stages]
    assert left == sorted(left, reverse=True)
    assert left[-1] == row.metrics["top1"].value < 1
    assert row.metrics["top1_8bit"].value >= row.metrics["top1"].value
    assert "screened" in {warning.code for warning in row.warnings}
    tables = outcomes(client, job_id, tmp_path)
    table = rows(tables["outcomes-000-autoattack.csv"])
    assert sum(1 for line in table if line["broken_by"]) == sum(stage.broken for stage in stages)
    names = [artifact.name for artifact in client.artifacts(job_id)]
    assert any(name.startswith("adversarial-000-autoattack") for name in names)


def transfer(job_id: str, **params: Any) -> dict[str, Any]:
    return {"name": "transfer", "params": {"job": job_id, "epsilon": "16/255", **params}}


@pytest.mark.costly
def test_a_transfer_attack_waits_for_its_model_and_keeps_it(shared: RunningService, trained: str) -> None:
    client = shared.client
    other = client.submit(learning(seed=1)).id
    job = client.submit(attacking(trained, [{"name": "clean"}, transfer(other)], limit=64))
    assert job.state == "waiting"
    with pytest.raises(InvalidState, match="only a job that has ended"):
        client.delete(other)
    finished(client, job.id)
    results = client.results(job.id)
    assert results.evaluations[1].metrics["attack_success_rate"].value > 0
    assert results.provenance is not None
    spec = client.job(other).spec["model"]
    assert {job_id: source.model_dump() for job_id, source in results.provenance.sources.items()} == {
        other: {
            "model": {"name": spec["name"], "params": spec["params"]},
            "weights_sha256": weights(client, other),
        }
    }
    assert results.provenance.weights_sha256 == weights(client, trained) != weights(client, other)


@pytest.mark.costly
def test_a_job_to_transfer_from_is_not_deleted_while_it_is_needed(
    shared: RunningService, trained: str
) -> None:
    client = shared.client
    other = client.submit(training(seed=2)).id
    finished(client, other)
    long = transfer(other, steps=20_000, restarts=20)
    job_id = client.submit(attacking(trained, [long])).id
    with pytest.raises(InvalidState, match=f"{job_id} is not finished and needs the weights of job {other}"):
        client.delete(other)
    wait_for(lambda: client.job(job_id).state == "running", 120)
    client.cancel(job_id)
    wait_for(lambda: client.job(job_id).state == "canceled", 120)
    client.delete(other)
    with pytest.raises(
        InvalidState, match=f"job {other}, whose weights job {job_id} needs, has been deleted"
    ):
        client.retry(job_id)
    with pytest.raises(InvalidSpec) as caught:
        client.submit(attacking(trained, [transfer(other)]))
    assert caught.value.details[0].message == "there is no such job"


@pytest.mark.costly
def test_who_waits_for_a_model_that_does_not_come_fails_and_can_be_retried(
    shared: RunningService, trained: str
) -> None:
    client = shared.client
    other = client.submit(training(epochs=500, seed=3)).id
    job_id = client.submit(attacking(trained, [transfer(other, steps=2)], limit=16)).id
    client.cancel(other)
    wait_for(lambda: client.job(job_id).state == "failed", 120)
    error = client.job(job_id).error
    assert error is not None
    assert (error.type, other in error.message) == ("dependency_failed", True)
    retried = client.retry(job_id)
    assert retried.state == "waiting"
    assert other in retried.message
    client.cancel(job_id)


@pytest.mark.costly
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_model_that_cannot_be_transferred_from_is_named(
    shared: RunningService, trained: str, dry_run: bool
) -> None:
    client = shared.client
    evaluation = client.submit(attacking(trained, [{"name": "clean"}], limit=8)).id
    canceled = client.submit(training(epochs=500)).id
    client.cancel(canceled)
    wait_for(lambda: client.job(canceled).state == "canceled", 120)
    small = client.submit(
        training(epochs=500) | {"model": {"name": "symvit", "params": SHAPE | {"image_size": 16}}}
    ).id
    wrong = {
        evaluation: "this job is of kind evaluate",
        canceled: "this job is canceled",
        "0" * 26: "there is no such job",
        "../../etc": "there is no such job",
        small: "this job's model is for images of 16 pixels",
    }
    spec = attacking(trained, [{"suite": "quick"}, transfer(trained), *map(transfer, wrong)])
    with pytest.raises(InvalidSpec) as caught:
        client.dry_run(spec) if dry_run else client.submit(spec)
    details = caught.value.details
    assert [detail.loc for detail in details] == [["evaluations", 2 + n, "params", "job"] for n in range(5)]
    for detail, (given, message) in zip(details, wrong.items(), strict=True):
        assert detail.message.startswith(message)
        assert detail.given == given
        assert "a training job" in str(detail.allowed)
    client.cancel(small)


@pytest.mark.parametrize(
    ("change", "loc", "words"),
    [
        ({"evaluations": [{"name": "autoatack"}]}, ["evaluations", 0, "name"], "autoattack"),
        (
            {"evaluations": [{"name": "autoattack", "params": {"version": "custom"}}]},
            ["evaluations", 0, "params"],
            "needs stages",
        ),
        (
            {"evaluations": [{"name": "autoattack", "params": {"version": "custom", "stages": ["apgd"]}}]},
            ["evaluations", 0, "params", "stages", 0],
            "apgd_",
        ),
        (
            {"evaluations": [{"name": "apgd_t", "params": {"targets": 0}}]},
            ["evaluations", 0, "params", "targets"],
            "1",
        ),
        ({"evaluations": [{"name": "transfer"}]}, ["evaluations", 0, "params", "job"], "required"),
        ({"protocol": "paper", "screening": "bfloat16"}, ["execution", "screening"], "pixel"),
        ({"save_adversarial": "yes"}, ["save_adversarial"], "true or false"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_is_named(
    shared: RunningService, change: dict[str, Any], loc: list[Any], words: str
) -> None:
    spec = attacking(None, [{"name": "clean"}]) | change
    spec["model"]["params"] = SHAPE
    if screening := spec.pop("screening", None):
        spec["execution"] = {**spec["execution"], "screening": screening}
    with pytest.raises(InvalidSpec) as caught:
        shared.client.submit(spec)
    found = {tuple(detail.loc): detail for detail in caught.value.details}
    assert tuple(loc) in found, found
    assert words in str(found[tuple(loc)].model_dump())
