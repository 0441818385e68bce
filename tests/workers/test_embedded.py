"""Start, refused start and end of the embedded service: exit codes and messages."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from assay.service import serving
from assay.service.contract.fleet.release import own_release
from assay.service.files.state_lock import PRIVATE, Holder, holder_of
from assay.service.store.store import open_store
from assay.workers import embedded
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
Refused = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Refused]:
    """Calls `main` with these variables in a process that must refuse; exit code and lines."""
    before = signal.getsignal(signal.SIGTERM)
    threads = threading.active_count()

    def call(**environment: str) -> tuple[int, list[str]]:
        monkeypatch.setenv("ASSAY_STATE", str(tmp_path / "state"))
        for name, value in environment.items():
            monkeypatch.setenv(f"ASSAY_{name}", value)
        monkeypatch.setenv("ASSAY_PORT", environment.get("PORT", str(free_port())))
        code = embedded.main()
        # Threads of earlier tests may end meanwhile.
        assert threading.active_count() <= threads, "nothing is left running"
        return code, capfd.readouterr().err.splitlines()

    yield call
    signal.signal(signal.SIGTERM, before)


def test_every_wrong_setting_is_a_line(refused: Refused) -> None:
    code, lines = refused(PORT="70000", LEASE_SECONDS="-1", SHARD_SECONDS="inf", EVALUATOR_COMMAND="'x")
    assert code == 2
    assert lines == [
        "ASSAY_PORT: must be at most 65535 (given '70000')",
        "ASSAY_LEASE_SECONDS: must be more than 0 (given '-1')",
        "ASSAY_SHARD_SECONDS: must be a finite number (given 'inf')",
        'ASSAY_EVALUATOR_COMMAND: no command line: No closing quotation (given "\'x")',
    ]


def test_a_setting_that_all_read_is_reported_once(refused: Refused) -> None:
    code, lines = refused(DATA_ROOT="~nobody-has-this-name/data")
    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith("ASSAY_DATA_ROOT: path '~nobody-has-this-name/data' is in the home folder of")


def test_settings_that_do_not_go_together_are_a_line(refused: Refused) -> None:
    code, lines = refused(LEASE_SECONDS="1", RENEW_SECONDS="20", CONTROL_SECONDS="1")
    assert (code, len(lines)) == (2, 1)
    assert "lease" in lines[0]


def test_a_database_url_of_another_kind_is_one_line(refused: Refused) -> None:
    code, lines = refused(DATABASE_URL="mysql://me:secret@db/assay")
    assert code == 1
    (line,) = lines
    assert line.startswith("ASSAY_DATABASE_URL: the database URL starts with mysql://, allowed: sqlite:")
    assert "secret" not in line


def test_a_database_file_that_cannot_be_opened_is_one_line(refused: Refused, tmp_path: Path) -> None:
    code, lines = refused(DATABASE_URL=f"sqlite:///{tmp_path}")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("cannot open the database: ")
    assert "unable to open database file" in lines[0]


def test_a_server_that_does_not_answer_is_one_line(refused: Refused) -> None:
    port = free_port()
    code, lines = refused(DATABASE_URL=f"postgresql+psycopg://me@127.0.0.1:{port}/assay")
    assert (code, len(lines)) == (1, 1)
    assert str(port) in lines[0]


def test_a_state_folder_that_cannot_be_made_is_one_line(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, lines = refused(STATE=str(tmp_path / "file" / "state"))
    assert (code, lines) == (1, [f"cannot use the state folder {tmp_path}/file/state: Not a directory"])


def test_a_port_in_use_is_one_line(refused: Refused, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, lines = refused(PORT=str(port))
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"cannot listen on 127.0.0.1, port {port}: Address already in use; choose")
    assert not (tmp_path / "state" / "assay.sqlite").exists(), "nothing was begun that must be ended"


def test_a_port_is_taken_before_anything_is_served_on_it() -> None:
    with serving.listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(embedded.CannotStart, match=f"port {port}: Address already in use"):
            serving.listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("argument", "host", "stated"),
    [
        ("", "127.0.0.1", "http://127.0.0.1:{}"),
        ("", "0.0.0.0", "http://127.0.0.1:{}"),
        (PRIVATE, "127.0.0.1", ""),
    ],
)
def test_it_says_where_it_serves(
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    argument: str,
    host: str,
    stated: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["embedded", argument])

    def run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        port = sockets[0].getsockname()[1]
        assert holder_of(tmp_path / "state") == Holder(
            tmp_path / "state", str(os.getpid()), stated.format(port)
        )
        assert f"http://{host}:{port}/docs" in caplog.text
        raise KeyboardInterrupt

    caplog.set_level("INFO")
    monkeypatch.setattr(uvicorn.Server, "run", run)
    assert refused(HOST=host, PORT="0", WORKERS="0")[0] == 0


def test_the_address_of_ipv6_has_brackets() -> None:
    with serving.listen("::1", 0) as listener:
        assert serving.address_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    mine = {"ASSAY_STATE": str(tmp_path), "ASSAY_PORT": str(port), "ASSAY_LOG_LEVEL": "WARNING"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
    command = [sys.executable, "-m", "assay.workers.embedded"]
    with subprocess.Popen(command, cwd=ROOT, env=kept | mine, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until_listed(f"http://127.0.0.1:{port}/readyz", process)
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    with open_store(f"sqlite:///{tmp_path / 'assay.sqlite'}") as store:
        assert store.workers.online("auto") == 0, "the worker said goodbye, so it was stopped and not cut off"
        (own,) = store.identities.all()
        assert (own.name, own.verdict) == (own_release()["source_sha256"], "declared")


def wait_until_listed(url: str, process: subprocess.Popen[str]) -> None:
    for _ in range(2400):
        assert process.poll() is None
        try:
            if httpx.get(url).json()["workers_online"]["auto"] == 1:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("no worker came within 120 s")
