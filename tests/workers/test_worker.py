"""`assay worker`: refused starts, and a worker beside an embedded service without workers of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.workers import worker
from tests.e2e.jobs import finished, learning
from tests.e2e.running import FAST, RunningService, wait_for


def refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], **variables: str
) -> tuple[int, str]:
    for name, value in variables.items():
        monkeypatch.setenv(f"ASSAY_{name}", value)
    code = worker.main()
    return code, capfd.readouterr().err


def test_without_a_service_it_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, text = refused(monkeypatch, capfd, STATE=str(tmp_path))
    assert code == 1
    assert text == (
        f"no service has been started with the state folder {tmp_path}: begin with"
        f" `assay serve --state {tmp_path}`\n"
    )
    assert not list(tmp_path.iterdir())


def test_wrong_settings_are_lines(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, text = refused(monkeypatch, capfd, STATE=str(tmp_path), TORCH_THREADS="0", LEASE_SECONDS="-1")
    assert code == 2
    assert [line.partition(":")[0] for line in text.splitlines()] == [
        "ASSAY_TORCH_THREADS",
        "ASSAY_LEASE_SECONDS",
    ]


def test_the_distributed_mode_has_nodes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    addresses = {
        "DATABASE_URL": "postgresql+psycopg://me@127.0.0.1/assay",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    code, text = refused(monkeypatch, capfd, STATE=str(tmp_path), MODE="distributed", **addresses)
    assert (code, "assay.workers.nodes" in text) == (1, True)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    running = RunningService(tmp_path / "state", ASSAY_WORKERS="0").start()
    yield running
    running.close()


@pytest.mark.costly
def test_it_does_the_work_of_a_service_without_workers(service: RunningService, tmp_path: Path) -> None:
    job = service.client.submit(learning()).id
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
    own = {"ASSAY_STATE": str(service.state), "ASSAY_NODE": "beside", **FAST}
    command = [sys.executable, "-m", "assay.workers.worker"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=kept | own, stdout=log, stderr=subprocess.STDOUT)
    try:
        finished(service.client, job)
        (row,) = service.client.workers()
        assert row.name.endswith(":beside")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    wait_for(lambda: not service.client.workers(), 120)
