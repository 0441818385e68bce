"""A node that has an address and a key: nothing is lost when either side goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from assay.service.client.transport import authorization
from tests.e2e.jobs import attacking, finished, outcomes, pgd, training, weights
from tests.e2e.running import SHARDED, RunningGateway, RunningService, processes, wait_for

LONG = [pgd("2/255", steps=40), pgd("4/255", steps=40)]
SOON = {"ASSAY_LEASE_SECONDS": "6", "ASSAY_RENEW_SECONDS": "2", "ASSAY_CHECKPOINT_SECONDS": "0.3"}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    service = RunningService(tmp_path_factory.mktemp("calm") / "state", ASSAY_WORKERS="1", **SHARDED)
    yield service.start()
    service.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    service = RunningGateway(tmp_path_factory.mktemp("gateway") / "state", **SHARDED, **SOON)
    yield service.start()
    service.close()


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.timeout(900)
def test_kills_of_node_and_gateway_change_nothing(
    calm: RunningService, gateway: RunningGateway, tmp_path: Path
) -> None:
    jobs = {}
    for service in (gateway, calm):
        source = service.client.submit(training(epochs=20)).id
        jobs[service] = [source, service.client.submit(attacking(source, LONG)).id]
    source, disturbed = jobs[gateway]
    wait_for(lambda: gateway.client.job(source).progress.done > 20, 120)
    replace_node(gateway)
    wait_for(lambda: gateway.client.job(disturbed).progress.done > 50, 180)
    replace_node(gateway)
    wait_for(lambda: gateway.client.job(disturbed).progress.done > 150, 180)
    gateway.stop_service()
    wait_for(lambda: list(gateway.state.with_name("state-node0").glob("spool/*.json")), 60)
    gateway.start()
    for service, (trained, attacked) in jobs.items():
        finished(service.client, attacked)
        found = outcomes(service.client, attacked, tmp_path / attacked)
        jobs[service] = [str(found), str(weights(service.client, trained))]
    assert jobs[gateway] == jobs[calm]


def replace_node(gateway: RunningGateway) -> None:
    """kill -9 of the node at work, whose evaluator goes with it; another follows."""
    evaluators = set(gateway.evaluators())
    gateway.kill_node()
    wait_for(lambda: not evaluators & set(processes()), 60)
    gateway.start_node(0)


def test_a_key_of_workers_opens_the_gateway_alone(gateway: RunningGateway) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}/api/v1") as http:
        worker, user = authorization(gateway.worker_key), authorization(gateway.key)
        for path in ("/jobs", "/keys", "/workers", "/checkpoints", "/catalog"):
            assert http.get(path, headers=worker).status_code == 403, path
        me = {"name": "x", "identity": "", "device_classes": ["cpu"]}
        assert http.post("/worker/standing", json=me, headers=worker).status_code == 200
        assert http.post("/worker/standing", json=me, headers=user).status_code == 403
        assert http.post("/worker/renew", json={"token": "a.b"}, headers=worker).status_code == 422
