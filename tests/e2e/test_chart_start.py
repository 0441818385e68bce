"""What the pods of the Helm chart run, without a cluster: service, keeper, a worker for a time, and a job."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.client import AssayClient
from tests.e2e.jobs import attacking, finished, pgd
from tests.support.chart import LEAST, environment, kinds, pods, rendered_with, with_values
from tests.support.containers import Containers, lines_with
from tests.support.workers import wait_for

VALUES = {
    "database": {"url": "postgresql+psycopg://assay@postgres:5432/assay"},
    "redis": {"url": "redis://redis:6379/0"},
    "workers": {"idleSeconds": 15},
}


@pytest.fixture
def chart() -> list[dict[str, Any]]:
    return rendered_with(with_values(LEAST, VALUES))


@pytest.fixture
def containers(tmp_path: Path, chart: list[dict[str, Any]]) -> Iterator[Containers]:
    """Compose's database and Redis; the other services are the chart's pods."""
    running, found = Containers(tmp_path / "box"), pods(chart)
    for name, component in {"migrate": "migration", "service": "service", "worker": "keeper"}.items():
        (container,) = found[component]["spec"]["containers"]
        running.services[name] |= {"command": container["command"], "environment": environment(container)}
    yield running
    running.kill()


def started_worker(containers: Containers, chart: list[dict[str, Any]]) -> subprocess.Popen[bytes]:
    """The container of the Jobs, which is given the address and the key of the gateway alone."""
    (container,) = pods(chart)["worker"]["spec"]["containers"]
    variables = environment(container) | {
        "ASSAY_GATEWAY": containers.url.replace("127.0.0.1", "localhost"),
        "ASSAY_STATE": str(containers.folder / "node"),
    }
    containers.services["elastic"] = {"command": container["command"], "environment": variables}
    file = containers.folder / "secrets" / Path(variables["ASSAY_WORKER_KEY_FILE"]).name
    file.write_text(new_key(containers, "worker", "--tenant", "nodes"))
    containers.start("elastic")
    return containers.processes["elastic"]


def new_key(containers: Containers, scope: str, *more: str) -> str:
    command = ("assay", "keys", "create", "--name", scope, "--scope", scope, "--json", *more)
    made = containers.run("service", *command)
    assert made.returncode == 0, made.stderr
    key: str = json.loads(made.stdout)["key"]
    return key


@pytest.mark.slow
def test_a_worker_for_a_time_does_a_job_of_the_service(
    containers: Containers, chart: list[dict[str, Any]]
) -> None:
    for name in ("postgres", "redis"):
        containers.start(name)
        containers.wait_until_healthy(name)
    containers.start("migrate")
    assert containers.processes["migrate"].wait(120) == 0, containers.log("migrate")
    containers.start("service")
    url = containers.url.replace("127.0.0.1", "localhost")  # as of `kubectl port-forward`
    wait_for(lambda: up(url))
    job = attacking(None, [{"name": "clean"}, pgd(steps=2)], limit=64)
    with AssayClient(url, key=new_key(containers, "submit")) as client:
        submitted = client.submit(job).id
        metrics = kinds(chart, "ScaledJob")["lab-worker"]["spec"]["triggers"][0]["metadata"]["url"]
        asked = {"Host": httpx.URL(metrics).host, "Authorization": f"Bearer {new_key(containers, 'read')}"}
        text = httpx.get(f"{url}/metrics", headers=asked).text
        assert 'assay_shards{device="cpu",state="queued"} 1.0' in text
        worker = started_worker(containers, chart)
        assert worker.wait(240) == 0, containers.log("elastic")
        assert "ends: no work for 15 s" in containers.log("elastic")
        assert client.job(submitted).progress.done == 128, "a worker at the gateway has measured all of it"
        containers.start("worker")  # the keeper, which merges
        finished(client, submitted)
        results = client.results(submitted)
        assert results.complete
        assert [one.metrics["top1"].n for one in results.evaluations] == [64, 64]
        again = client.submit(job).id
        finished(client, again)
        assert client.results(again).evaluations[1].metrics == results.evaluations[1].metrics
    containers.processes["worker"].terminate()
    assert containers.processes["worker"].wait(60) == 0, containers.log("worker")
    for name in ("service", "elastic", "worker"):
        assert not lines_with(containers.passwords, containers.log(name)), f"{name} shows a secret"
        assert "Traceback" not in containers.log(name)


def up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False
