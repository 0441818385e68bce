"""The API process of the distributed mode: how it starts, refuses to start, and ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from assay.service.contract.fleet.release import own_release
from assay.service.store.store import open_store
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.servers import PrivatePostgresql, free_port

ROOT = Path(__file__).resolve().parents[2]
SECRET = "a-password-of-the-test"
Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Starts a module with these ASSAY_ variables in the distributed mode."""
    started: list[subprocess.Popen[str]] = []

    def start(module: str, **variables: str) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_")}
        given = {"MODE": "distributed", "STATE": str(tmp_path / "state"), **variables}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=ROOT,
                env=kept | {f"ASSAY_{name}": value for name, value in given.items()},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def refusal(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The exit code and the lines of a process that must refuse."""
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors.splitlines()


@pytest.mark.costly
@pytest.mark.parametrize("module", ["assay.service.server", "assay.service.migrate", "assay.workers.nodes"])
def test_nothing_starts_without_its_secrets(module: str, run: Run) -> None:
    urls = {"DATABASE_URL": "postgresql+psycopg://assay@db/assay", "REDIS_URL": "redis://redis:6379/0"}
    code, lines = refusal(run(module, **urls))
    assert code == 2
    (line,) = lines
    assert line.startswith("ASSAY_DATABASE_PASSWORD: missing; db can be reached over the network")
    code, lines = refusal(run(module, **urls, DATABASE_PASSWORD=SECRET, REDIS_PASSWORD="changeme"))
    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith("ASSAY_REDIS_PASSWORD: too short or a well-known default")
    assert SECRET not in lines[0]


@pytest.mark.costly
def test_the_server_is_for_the_distributed_mode(run: Run) -> None:
    code, lines = refusal(run("assay.service.server", MODE="embedded"))
    assert (code, len(lines)) == (2, 1)
    assert "assay serve" in lines[0]


@pytest.mark.costly
@pytest.mark.parametrize("variable", ["SIGNING_FOLDER", "STATE"])
def test_it_does_not_start_where_it_could_not_sign(run: Run, tmp_path: Path, variable: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "signing").write_text("no folder")
    process = run(
        "assay.service.server",
        PORT="0",
        DATABASE_URL=f"postgresql+psycopg://assay@127.0.0.1:{free_port()}/postgres",
        DATABASE_PASSWORD=SECRET,
        REDIS_URL=f"redis://127.0.0.1:{free_port()}/0",
        **{variable: str(folder / "signing" if variable == "SIGNING_FOLDER" else folder)},
    )
    code, lines = refusal(process)
    assert code == 1
    assert lines[-1].endswith("signing is no folder (ASSAY_SIGNING_FOLDER, ASSAY_SIGNING_KEY)")


@pytest.mark.costly
def test_it_starts_while_database_and_redis_are_away_and_ends_in_order(run: Run) -> None:
    port = free_port()
    with PrivatePostgresql("assay", SECRET) as database:
        database.stop()
        process = run(
            "assay.service.server",
            PORT=str(port),
            DATABASE_URL=f"postgresql+psycopg://assay@127.0.0.1:{database.port}/postgres",
            DATABASE_PASSWORD=SECRET,
            REDIS_URL=f"redis://127.0.0.1:{free_port()}/0",
            ALLOWED_IDENTITIES=json.dumps(["b2" * 8]),
        )
        url = f"http://127.0.0.1:{port}"
        assert status_of(f"{url}/healthz", until={200}) == 200
        assert status_of(f"{url}/readyz", until={503}) == 503
        database.start()
        assert status_of(f"{url}/readyz", until={200}) == 200
        process.terminate()
        assert process.wait(timeout=60) == 0
        address = f"postgresql+psycopg://assay:{SECRET}@127.0.0.1:{database.port}/postgres"
        with open_store(address, migrate=False) as store:
            declared = {one.name for one in store.identities.all()}
    assert declared == {own_release()["source_sha256"], "b2" * 8}, "as soon as the database is there"


def status_of(url: str, until: set[int]) -> int:
    """The answer's status, once it is one of these."""
    status = 0
    deadline = time.monotonic() + 120
    while status not in until and time.monotonic() < deadline:
        try:
            status = httpx.get(url, timeout=30).status_code
        except httpx.TransportError:
            status = 0
        time.sleep(0.1)
    return status
