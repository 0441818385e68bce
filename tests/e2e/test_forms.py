"""The same jobs in every form of the service: the same results, and the same bytes in every file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.client import AssayClient
from tests.e2e.conftest import Start
from tests.e2e.jobs import attacking, finished, learning, pgd, weights
from tests.e2e.running import FORMS, SHARDED, RunningService
from tests.storm.verdict import timeless

FIRST, *OTHERS = FORMS


def measured(service: RunningService) -> dict[str, Any]:
    """What a training and an attack on its weights leave, without times, job ids and pictures."""
    client = service.client
    trained = finished(client, client.submit(learning()).id).id
    spec = attacking(trained, [{"name": "clean"}, pgd()], save_adversarial=True, limit=96)
    attacked = finished(client, client.submit(spec).id).id
    return {
        "weights": weights(client, trained),
        "training": [timeless(one.model_dump()) for one in client.results(trained).evaluations],
        "rows": [timeless(one.model_dump()) for one in client.results(attacked).evaluations],
        "files": files(client, attacked),
        "names": sorted(files(client, trained)),  # they name the job, or times
    }


def files(client: AssayClient, job: str) -> dict[str, str]:
    """Artifact -> SHA-256, without plots, which name the job and are drawn when someone looks."""
    return {one.name: one.sha256 for one in client.artifacts(job) if not one.name.startswith("plot-")}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the first form gives."""
    service = FORMS[FIRST](tmp_path_factory.mktemp("first") / "state", ASSAY_WORKERS="1", **SHARDED)
    try:
        return measured(service.start())
    finally:
        service.close()


@pytest.mark.trains
@pytest.mark.parametrize("mode", OTHERS, indirect=True)
def test_every_form_gives_the_same_results_and_files(
    start_service: Start, expected: dict[str, Any], tmp_path: Path
) -> None:
    service = start_service(tmp_path / "state", ASSAY_WORKERS="2", **SHARDED)
    found = measured(service)
    assert found["files"].keys() >= {"outcomes-000-clean.csv", "outcomes-001-pgd.csv"}
    assert found == expected
    assert {*service.files.jobs()} == {job.id for job in service.client.jobs()}
    if service.files.kind == "s3":
        assert not [path for path in (service.state / "artifacts").rglob("*") if path.is_file()]
    for state in service.worker_states:
        assert not list(state.glob("spool/*.json"))
