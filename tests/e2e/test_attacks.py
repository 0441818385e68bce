"""Attacks through the real service, in both modes: the suite for a sign-off, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.contract.errors import InvalidSpec
from service.contract.results import StageBreakdown
from tests.e2e.jobs import SHAPE, attacking, finished, outcomes, rows, training
from tests.e2e.running import RunningService

Start = Callable[..., RunningService]

STAGES = ["apgd_ce", "apgd_t", "fab_t", "square"]
AUTOATTACK = {"name": "autoattack", "params": {"epsilon": "2/255", "queries": 50}}


@pytest.fixture(scope="module")
def service(make_service: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("attacks")
    running = make_service(folder / "state", ASSAY_WORKERS="2").start()
    yield running
    running.close()


@pytest.fixture(scope="module")
def trained(service: RunningService) -> str:
    job_id = service.client.submit(training(epochs=20)).id
    finished(service.client, job_id)
    return job_id


def test_the_standard_suite_gives_every_row_a_value_an_interval_and_its_warnings(
    service: RunningService, trained: str
) -> None:
    client = service.client
    job_id = client.submit(attacking(trained, [{"suite": "standard"}], limit=16)).id
    finished(client, job_id, seconds=300)
    results = client.results(job_id)
    names = [row.name for row in results.evaluations]
    assert {"clean", "uniform_noise", "fgsm", "pgd", "square", "spsa", "autoattack"} <= set(names)
    for row in results.evaluations:
        top1 = row.metrics["top1"]
        assert top1.n == 16
        assert top1.value is not None
        assert top1.ci_low <= top1.value <= top1.ci_high
        assert "subset" in {warning.code for warning in row.warnings}
        assert row.forward_passes >= 16
    clean, ensemble = results.evaluations[0], results.evaluations[names.index("autoattack")]
    assert clean.metrics["top1"].value > 0.5
    assert ensemble.metrics["top1"].value <= min(
        row.metrics["top1"].value for row in results.evaluations if row.params.get("epsilon") == "8/255"
    )
    assert "adaptive_attack_needed" in {warning.code for warning in ensemble.warnings}


def test_autoattack_tells_its_stages_and_keeps_its_examples(
    service: RunningService, trained: str, tmp_path: Path
) -> None:
    client = service.client
    spec = attacking(trained, [AUTOATTACK], limit=64, save_adversarial=True)
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


def test_a_transfer_attack_takes_another_jobs_model(service: RunningService, trained: str) -> None:
    client = service.client
    other = client.submit(training(epochs=20, seed=1)).id
    finished(client, other)
    attack = {"name": "transfer", "params": {"job": other, "epsilon": "16/255"}}
    job_id = client.submit(attacking(trained, [attack], limit=64)).id
    finished(client, job_id)
    (row,) = client.results(job_id).evaluations
    assert row.metrics["attack_success_rate"].value > 0
    with pytest.raises(InvalidSpec) as caught:
        client.submit(attacking(trained, [{"name": "transfer", "params": {"job": job_id}}]))
    assert caught.value.details[0].loc == ["evaluations", 0, "params", "job"]
    assert "evaluate" in caught.value.details[0].message


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
    service: RunningService, change: dict[str, Any], loc: list[Any], words: str
) -> None:
    spec = attacking(None, [{"name": "clean"}]) | change
    spec["model"]["params"] = SHAPE
    if screening := spec.pop("screening", None):
        spec["execution"] = {**spec["execution"], "screening": screening}
    with pytest.raises(InvalidSpec) as caught:
        service.client.submit(spec)
    found = {tuple(detail.loc): detail for detail in caught.value.details}
    assert tuple(loc) in found, found
    assert words in str(found[tuple(loc)].model_dump())
