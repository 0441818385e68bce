"""One run of the jobs of a storm: its servers, its database, its folders, its evaluators."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from assay.service.store.store import Store, open_store
from tests.storm import clock
from tests.storm.disguise import VARIABLE
from tests.support.servers import PrivatePostgresql, PrivateRedis

EVALUATOR = "tests.storm.evaluator"
LEASE_SECONDS = 4.0
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
    "ASSAY_REPEAT": "0.1",
    "ASSAY_EVALUATOR_ENVIRONMENT": f"FAKE_EVALUATOR,{VARIABLE}",
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
        clock.install(url, name)
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

    def spools(self) -> list[Path]:
        """The folders in which outcomes wait for the database."""
        return [self.state / "spool"]

    def evaluators(self) -> list[int]:
        """The process ids of all evaluators of this run, orphans too."""
        wanted = f"{EVALUATOR}\0{self._mark}\0"
        return [pid for pid, line in command_lines().items() if line.endswith(wanted)]


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
