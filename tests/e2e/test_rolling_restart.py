"""The processes of a distributed fleet are restarted one by one while jobs run, also into a new release.

Nothing is lost, no attempt is counted, and the outcomes have the bits of an undisturbed fleet. Jobs that were
planned under the old release wait for it, and say so, until they are planned again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.service.client import AssayClient
from assay.service.store.store import open_store
from tests.e2e.jobs import attacking, finished, pgd, training, weights
from tests.e2e.jobs import outcomes as outcomes_of
from tests.e2e.running import FAST, ROOT, SHARDED, RunningBox, wait_for
from tests.support.databases import fresh_database
from tests.support.servers import PrivateRedis, free_port

PACKAGES = ("attacks", "models", "service", "src", "workers")
LONG = [pgd("8/255", steps=120)]
NODES = ("a", "b")


class Fleet:
    """A service and two nodes, each restarted alone, from this checkout or from another one."""

    def __init__(self, folder: Path, database: str, redis: str) -> None:
        self._folder, self.database = folder, database
        self._port = free_port()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")},
            **FAST,
            **SHARDED,
            "ASSAY_STATE": str(folder / "state"),
            "ASSAY_MODE": "distributed",
            "ASSAY_DATABASE_URL": database,
            "ASSAY_REDIS_URL": redis,
            "ASSAY_PORT": str(self._port),
            "ASSAY_NODES": "1",
            "ASSAY_SWEEP_SECONDS": "1",
            "ASSAY_CHECKPOINT_SECONDS": "0.3",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        with open_store(database) as store:
            key = store.keys.create("tests", ["admin"])[1]
        self.client = AssayClient(f"http://127.0.0.1:{self._port}", key)

    def restart(self, name: str, tree: Path = ROOT) -> None:
        """Stops a process as an operator does it, and starts it again from a checkout."""
        self._stop(name)
        module = "assay.service.server" if name == "service" else "assay.workers.nodes"
        own = {"PYTHONPATH": str(tree / "src")} | ({} if name == "service" else {"ASSAY_NODE": name})
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                cwd=tree,
                env=self._environment | own,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if name == "service":
            wait_for(self.client.ready, 180)
        else:
            wait_for(lambda: self.worker(name) not in ("", "offline"), 180)

    def worker(self, name: str) -> str:
        """The state of a node; empty before its first heartbeat."""
        return next((one.state for one in self.client.workers() if f":{name}-cpu0" in one.name), "")

    def counted(self, *jobs: str) -> set[tuple[int, int]]:
        """Failures and losses of the shards of some jobs."""
        with open_store(self.database, migrate=False) as store:
            return {(row.failures, row.losses) for job_id in jobs for row in store.shards.of(job_id)}

    def close(self) -> None:
        """Stops all."""
        for name in [*self._processes]:
            self._stop(name)
        self.client.close()

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.terminate()
            process.wait(timeout=120)


@pytest.fixture
def fleet(postgresql_server: str, tmp_path: Path) -> Iterator[Fleet]:
    with fresh_database(postgresql_server) as database, PrivateRedis() as redis:
        running = Fleet(tmp_path, database, redis.url)
        try:
            for name in ("service", *NODES):
                running.restart(name)
            yield running
        finally:
            running.close()


@pytest.fixture
def calm(postgresql_server: str, tmp_path: Path) -> Iterator[RunningBox]:
    """An undisturbed fleet."""
    box = RunningBox(tmp_path / "calm", postgresql_server, ASSAY_WORKERS="1", **SHARDED)
    yield box.start()
    box.close()


def next_release(folder: Path) -> Path:
    """A copy of this checkout with another line in a source that computes numbers."""
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    with (folder / "workers" / "evaluation" / "clean.py").open("a") as file:
        file.write("# the next release\n")
    return folder


def outcomes(client: AssayClient, job_id: str, folder: Path, attempt: int = 1) -> dict[str, str]:
    """The outcome tables of a job that has succeeded."""
    assert finished(client, job_id, 400).attempt == attempt
    return outcomes_of(client, job_id, folder / job_id)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_rolling_restart_loses_nothing_and_changes_no_bit(
    fleet: Fleet, calm: RunningBox, tmp_path: Path
) -> None:
    source = calm.client.submit(training(epochs=10)).id
    expected = outcomes(calm.client, calm.client.submit(attacking(source, LONG)).id, tmp_path)
    client = fleet.client
    trained = client.submit(training(epochs=10)).id
    wait_for(lambda: client.job(trained).progress.done > 30, 180)
    for name in ("a", "service", "b"):
        fleet.restart(name)
    assert finished(client, trained).attempt == 1
    assert weights(client, trained) == weights(calm.client, source)
    attacked = client.submit(attacking(trained, LONG)).id
    for done, name in ((40, "b"), (120, "service"), (200, "a")):
        wait_for(lambda done=done: client.job(attacked).progress.done > done, 180)  # type: ignore[misc]
        fleet.restart(name)
    assert outcomes(client, attacked, tmp_path) == expected
    assert fleet.counted(trained, attacked) == {(0, 0)}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_new_release_resumes_trainings_and_measures_what_is_planned_again(
    fleet: Fleet, calm: RunningBox, tmp_path: Path
) -> None:
    """The nodes are drained first, so that jobs of the old release are left for certain."""
    source = calm.client.submit(training(epochs=10)).id
    expected = outcomes(calm.client, calm.client.submit(attacking(source, LONG)).id, tmp_path)
    client, tree = fleet.client, next_release(tmp_path / "next")
    trained = client.submit(training(epochs=10)).id
    finished(client, trained)
    old = client.submit(attacking(trained, LONG)).id
    wait_for(lambda: client.job(old).progress.done > 40, 180)
    going = client.submit(training(epochs=10)).id
    names = [one.name for one in client.workers()]
    for name in names:
        client.drain_worker(name)
    fleet.restart("service", tree)
    for name in names:
        client.uncordon_worker(name)
    wait_for(lambda: {fleet.worker(one) for one in NODES} == {"unknown"}, 60)
    assert client.job(going).state != "succeeded"
    for name in NODES:
        fleet.restart(name, tree)
    assert finished(client, going).attempt == 1
    assert weights(client, going) == weights(client, trained)
    assert client.job(old).message.startswith("waits for workers of identity "), client.job(old).message
    client.replan(old)
    assert outcomes(client, old, tmp_path, attempt=2) == expected
    after, before = client.results(old).provenance, client.results(trained).provenance
    assert after is not None
    assert before is not None
    assert after.code["source_sha256"] != before.code["source_sha256"]
    assert len(after.times["replans"]) == 1
    assert fleet.counted(trained, old, going) == {(0, 0)}
