"""`docker compose up` without Docker: all services of docker-compose.yml, a job, and the shutdown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.jobs import attacking, finished, pgd
from tests.e2e.running import processes
from tests.support.containers import Containers, lines_with


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    running = Containers(tmp_path / "box")
    yield running
    running.kill()


def descendants(parents: set[int]) -> set[int]:
    """All processes that these have started, and that theirs have."""
    found: set[int] = set()
    while True:
        more = {pid for pid, parent in processes().items() if parent in parents | found} - found
        if not more:
            return found
        found |= more


@pytest.mark.slow
def test_it_starts_works_and_ends_as_the_compose_file_says(containers: Containers) -> None:
    assert list(containers.order())[:3] == ["postgres", "redis", "migrate"]
    containers.up()
    containers.wait_until_healthy("service")
    assert httpx.get(f"{containers.url}/api/v1/jobs").status_code == 401
    made = containers.run(
        "service", "assay", "keys", "create", "--name", "compose", "--scope", "submit", "--json"
    )
    assert made.returncode == 0, made.stderr
    key = json.loads(made.stdout)["key"]
    with containers.client(key) as client:
        job_id = client.submit(attacking(None, [{"name": "clean"}, pgd(steps=2)], limit=64)).id
        assert finished(client, job_id).workers_online == 1
        results = client.results(job_id)
    assert results.complete
    assert [evaluation.metrics["top1"].n for evaluation in results.evaluations] == [64, 64]
    for name in ("postgres", "redis", "service", "worker"):
        containers.wait_until_healthy(name)
    started = {name: process.pid for name, process in containers.processes.items() if name != "migrate"}
    below = descendants(set(started.values()))
    assert len(below) >= 3, "a node, its pool process, and an evaluator that is kept warm"
    codes = containers.down()
    assert codes == dict.fromkeys(["worker", "service", "migrate", "redis", "postgres"], 0)
    assert not (below | set(started.values())) & set(processes())
    for name in containers.processes:
        log = containers.log(name)
        assert not lines_with(containers.passwords | {"key": key}, log), f"{name} shows a secret"
        assert "Traceback" not in log
    assert not list((containers.folder / "cwd").iterdir()), "the root file system is read-only"


@pytest.mark.slow
def test_nothing_starts_without_a_password_of_its_own(containers: Containers) -> None:
    there = containers.services["service"]["environment"]["ASSAY_DATABASE_URL"]
    for name, password, why in (
        ("migrate", "", "missing"),
        ("service", "", "missing"),
        ("worker", "", "missing"),
        ("service", "changeme", "well-known default"),
    ):
        given = {"ASSAY_DATABASE_URL": there, "ASSAY_DATABASE_PASSWORD": password}
        run = containers.run(name, *containers.services[name]["command"], **given)
        assert run.returncode == 2, run.stderr
        assert "ASSAY_DATABASE_PASSWORD" in run.stderr
        assert why in run.stderr
