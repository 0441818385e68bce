"""Set-up of the service benchmarks: a separate PostgreSQL, and a service in its own process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import psycopg

from assay.service.store.store import open_store
from tests.support.servers import PrivatePostgresql, PrivateRedis, free_port

START_SECONDS = 90


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """URL of an empty database on a separate server that syncs to disk as in production."""
    with PrivatePostgresql() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            # The tests skip syncing; a benchmark of commits must not.
            connection.execute("ALTER SYSTEM SET fsync = on")
            connection.execute("SELECT pg_reload_conf()")
        yield server.url.replace("postgresql://", "postgresql+psycopg://")


class Running(NamedTuple):
    """Service in its own process."""

    url: str
    pid: int
    headers: dict[str, str]

    def cpu_seconds(self) -> float:
        """CPU time used so far, over all threads; unlike latency, hardly affected by other load."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def service(database_url: str, **others: str) -> Iterator[Running]:
    """The API of the distributed mode on a database with tables, with keys and Redis; no workers.

    `others` are further ASSAY_ variables without their prefix.
    """
    with PrivateRedis() as redis, open_store(database_url) as store:
        key = store.keys.create("benchmark", ["admin"])[1]
        settings = {"MODE": "distributed", "REDIS_URL": redis.url, "DATABASE_URL": database_url, **others}
        with _process("assay.service.server", settings) as (url, pid):
            yield Running(url, pid, {"Authorization": f"Bearer {key}"})


@contextlib.contextmanager
def embedded(database_url: str, **settings: str) -> Iterator[str]:
    """Address of an embedded service; `settings` are ASSAY_ variables without their prefix."""
    with _process("assay.workers.embedded", {"DATABASE_URL": database_url, **settings}) as (url, _):
        yield url


@contextlib.contextmanager
def _process(module: str, settings: dict[str, str]) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory(prefix="assay-benchmark-") as folder:
        port = free_port()
        own = {"STATE": folder, "PORT": str(port), "LOG_LEVEL": "WARNING", **settings}
        # With bytecode, like every installation: without it an evaluator takes twice as long to start.
        dropped = ("ASSAY_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        environment = (
            kept | {f"ASSAY_{name}": value for name, value in own.items()} | {"OMP_NUM_THREADS": "1"}
        )
        with (Path(folder) / "log").open("wb") as log:
            command = [sys.executable, "-m", module]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)  # noqa: S603 (ours)
            try:
                url = f"http://127.0.0.1:{port}"
                _wait(url, process, Path(log.name))
                yield url, process.pid
            finally:
                process.terminate()
                process.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the service did not start: {log.read_text()[-2000:]}")


def percentile(values: list[float], percent: float) -> float:
    """Percentile of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def table(rows: list[list[str]]) -> str:
    """Rows in aligned columns; the first row has the names."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells))
    return "\n".join(lines) + "\n"
