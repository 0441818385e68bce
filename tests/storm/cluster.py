"""Cluster under the storm: the test's own PostgreSQL, Redis, state folder and worker boxes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from assay.service.store.store import Store, open_store
from tests.e2e.running import processes
from tests.support.servers import PrivatePostgresql, PrivateRedis

ROOT = Path(__file__).resolve().parents[2]
EVALUATOR = "tests.storm.evaluator"
LEASE_SECONDS = 4.0
STOP_SECONDS = 60
# Nodes of a box.
NODES = 2
# Short, so that minutes of a storm hold what weeks of a service do.
SETTINGS = {
    "ASSAY_MODE": "distributed",
    "ASSAY_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "ASSAY_RENEW_SECONDS": "1",
    "ASSAY_CONTROL_SECONDS": "0.5",
    "ASSAY_POLL_SECONDS": "5",
    "ASSAY_SWEEP_SECONDS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "ASSAY_DATABASE_AWAY_SECONDS": "0.3",
    "ASSAY_CANCEL_GRACE_SECONDS": "1",
    "ASSAY_CHECKPOINT_SECONDS": "0.3",
    "ASSAY_SHARD_SECONDS": "0.01",
    "OMP_NUM_THREADS": "1",
}


class Servers:
    """PostgreSQL and Redis for one storm and its undisturbed twin."""

    def __init__(self) -> None:
        self.postgresql = PrivatePostgresql()
        self.redis = PrivateRedis()

    def database(self, name: str) -> str:
        """A new database with all tables; returns its URL without driver."""
        with psycopg.connect(self.postgresql.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        url = f"{self.postgresql.url.rpartition('/')[0]}/{name}"
        open_store(sqlalchemy_url(url)).close()
        return url

    def __enter__(self) -> Servers:
        self.postgresql.start()
        self.redis.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.kill()
        self.postgresql.__exit__(None, None, None)


def sqlalchemy_url(url: str) -> str:
    """The URL in the store's form."""
    return url.replace("postgresql://", "postgresql+psycopg://")


class Site:
    """One run of the jobs: its database, its state folder, its logs.

    Args:
        servers: that run.
        name: of this run, and of its database.
        folder: for its state and its logs.
    """

    def __init__(self, servers: Servers, name: str, folder: Path) -> None:
        self.servers = servers
        self.logs, self.state = folder / "logs", folder / "state"
        self.logs.mkdir(parents=True)
        self.url = servers.database(name)
        # With the port, for more than one storm on a machine.
        self._mark = f"{name}-{servers.postgresql.port}"
        self.evaluator = f"{sys.executable} -m {EVALUATOR} {self._mark}"

    @contextmanager
    def store(self) -> Iterator[Store]:
        """A store on its database, for those who submit and look."""
        with open_store(sqlalchemy_url(self.url), migrate=False) as opened:
            yield opened

    def evaluators(self) -> list[int]:
        """The process ids of all evaluators of this run, orphans too."""
        wanted = f"{EVALUATOR}\0{self._mark}\0"
        return [pid for pid, line in command_lines().items() if line.endswith(wanted)]


class Cluster(Site):
    """Boxes of two Celery nodes each; a box that is killed is started again.

    Args:
        servers: that run.
        name: of the run.
        folder: for its state and its logs.
        workers: how many nodes.
        words: what the fake evaluator is told for every job.
    """

    def __init__(self, servers: Servers, name: str, folder: Path, workers: int, words: str) -> None:
        super().__init__(servers, name, folder)
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ASSAY_")},
            **SETTINGS,
            "ASSAY_DATABASE_URL": sqlalchemy_url(self.url),
            "ASSAY_REDIS_URL": servers.redis.url,
            "ASSAY_STATE": str(self.state),
            "ASSAY_EVALUATOR_COMMAND": self.evaluator,
            "FAKE_EVALUATOR": words,
            "ASSAY_EVALUATOR_ENVIRONMENT": "FAKE_EVALUATOR",
        }
        sizes = [NODES] * (workers // NODES) + [workers % NODES] * (workers % NODES > 0)
        self._sizes = sizes
        self._boxes: list[subprocess.Popen[bytes]] = [self._start(number) for number in range(len(sizes))]

    def boxes(self) -> list[int]:
        """The first process of each box, which starts the nodes."""
        return [box.pid for box in self._boxes if box.poll() is None]

    def nodes(self) -> list[int]:
        """The first process of each node, which listens to the doorbell."""
        return _children(self.boxes())

    def supervisors(self) -> list[int]:
        """The process of each node that claims shards and drives the evaluator."""
        return _children(self.nodes())

    def kill_box(self, box: int) -> None:
        """kill -9 of all processes of a box but its evaluators, as when its container is killed."""
        evaluators = set(self.evaluators())
        for pid in [box, *(nodes := _children([box])), *_children(nodes)]:
            if pid not in evaluators:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def revive(self) -> list[int]:
        """Start those boxes again that are dead, and return their numbers."""
        dead = [number for number, box in enumerate(self._boxes) if box.poll() is not None]
        for number in dead:
            self._boxes[number] = self._start(number)
        return dead

    def stop(self) -> list[int]:
        """SIGTERM to every box; returns the exit codes."""
        for pid in [*self.supervisors(), *self.nodes(), *self.boxes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for box in self._boxes:
            box.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for box in self._boxes:
            try:
                box.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill_box(box.pid)
                box.wait()
        return [box.returncode for box in self._boxes]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        with (self.logs / f"box-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "assay.workers.nodes"],
                cwd=ROOT,
                env=self._environment | {"ASSAY_NODES": str(self._sizes[number])},
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def _children(parents: list[int]) -> list[int]:
    return [pid for pid, parent in processes().items() if parent in parents]


def command_lines() -> dict[int, str]:
    """Process id -> its arguments, each with a zero byte after it; zombies have none."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "cmdline").read_text(errors="replace")
            except OSError:
                continue
    return found
