"""A node with an address, a key and an empty scratch disk: it stages what a job needs, and runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import timm
import torch

from assay.service.contract.errors import WeightsUnavailable
from assay.service.files.data_store import DataStore
from assay.workers.staging.publishing import publish
from assay.workers.staging.pulled import publish_weights
from assay.workers.staging.scratch import FOLDER, Scratch
from assay.workers.weights.pulled import PulledWeights
from tests.e2e.jobs import attacking, finished, pgd
from tests.e2e.running import SHARDED, RunningGateway, wait_for
from tests.support.imagenet_trees import write_set
from tests.support.pulled import pull_tensors

REFERENCE = "timm:test_resnet.r160_in1k"
EVALUATIONS = [{"name": "top1"}, pgd(steps=1)]


@pytest.fixture
def pulled(tmp_path: Path) -> PulledWeights:
    """Weights that only the machine of the operator has."""
    torch.manual_seed(1)
    state = {k: v.clone() for k, v in timm.create_model("test_resnet").state_dict().items()}
    return pull_tensors(tmp_path / "weights", REFERENCE, state, aliases=["timm:test_resnet"])


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    node = {name: str(tmp_path / "node" / name) for name in ("data", "weights")}
    Path(node["data"]).mkdir(parents=True)
    service = RunningGateway(
        tmp_path / "state",
        service={"ASSAY_DATA_STORE": str(tmp_path / "store")},
        node={
            "ASSAY_DATA_ROOT": node["data"],
            "ASSAY_WEIGHTS_ROOT": node["weights"],
            "ASSAY_STAGE": "yes",
        },
        **SHARDED,
    )
    yield service.start()
    service.close()


@pytest.mark.costly
@pytest.mark.timeout(300)
def test_a_job_runs_on_a_staged_set_and_staged_weights(
    gateway: RunningGateway, pulled: PulledWeights, tmp_path: Path
) -> None:
    client, store, origin = gateway.client, DataStore(tmp_path / "store"), tmp_path / "origin"
    write_set(origin, "imagenet", "val")
    one = publish(origin, "imagenet", store, state=tmp_path / "s")
    model = {"name": "timm", "params": {"architecture": "test_resnet"}, "weights": {"pulled": True}}
    spec: dict[str, Any] = {
        **attacking(None, EVALUATIONS),
        "model": model,
        "data": {"name": "imagenet"},
        "limit": 64,
    }
    ready = f"http://127.0.0.1:{gateway.port}/readyz"
    wait_for(lambda: httpx.get(ready).json()["workers_online"]["cpu"], 60)
    with pytest.raises(WeightsUnavailable, match="assay pull timm:test_resnet"):
        client.submit(spec)
    publish_weights(tmp_path / "weights", REFERENCE, store, state=tmp_path / "s")
    job = client.submit(spec)
    assert job.spec["model"]["weights"]["sha256"] == pulled.sha256
    finished(client, job.id)
    results = client.results(job.id)
    assert [row.metrics["top1"].n for row in results.evaluations] == [64, 64]
    assert results.provenance is not None
    assert results.provenance.pulled is not None
    assert results.provenance.pulled["sha256"] == pulled.sha256
    node = tmp_path / "node"
    assert {name: found.sha256 for name, found in Scratch(node / "data").staged().items()} == {
        "imagenet": one.sha256
    }
    assert {*Scratch(node / "weights").staged()} == {"timm/test_resnet.r160_in1k"}
    assert {path.name for path in (node / "data").iterdir()} == {FOLDER, "imagenet"}
