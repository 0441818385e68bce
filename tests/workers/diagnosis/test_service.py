"""What `assay doctor` says of what the box has in common with others: port, clock, database and Redis."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from assay.workers.diagnosis import service
from assay.workers.settings import WorkerSettings
from tests.support.servers import free_port


def test_a_port_that_this_user_may_not_have_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("ASSAY_PORT", "80")
    monkeypatch.setattr(socket.socket, "bind", refused)
    found = service.port()
    assert found.status == "fail"
    assert found.text == "127.0.0.1, port 80 cannot be listened on: Permission denied"


def test_a_wrong_clock_is_said(tmp_path: Path) -> None:
    settings = WorkerSettings(state=tmp_path)
    assert service.clock(settings, 0.1).status == "ok"
    assert service.clock(settings, -30.0).status == "warn"
    found = service.clock(settings, 3600.0)
    assert (found.status, found.text) == ("fail", "+3600.00 s against the database's")
    assert service.clock(settings, None).text.endswith(f"against the clock of the file system of {tmp_path}")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('FATAL: database "nosuchdb" does not exist', "create it, or correct ASSAY_DATABASE_URL"),
        (
            'FATAL: role "me" does not exist',
            "correct the user in ASSAY_DATABASE_URL, and ASSAY_DATABASE_PASSWORD",
        ),
        ("failed to resolve host 'db'", "correct the host in ASSAY_DATABASE_URL"),
        ("connection refused", "start it, and let this box reach it; ASSAY_DATABASE_URL names it"),
    ],
)
def test_a_database_that_gives_no_connection_has_the_remedy_of_its_reason(said: str, remedy: str) -> None:
    found = service._unreachable(said)
    assert (found.status, found.remedy) == ("fail", remedy)


def test_a_redis_that_is_away_fails(tmp_path: Path) -> None:
    settings = WorkerSettings(
        mode="distributed",
        state=tmp_path,
        database_url="postgresql+psycopg://assay@127.0.0.1/assay",
        redis_url=f"redis://127.0.0.1:{free_port()}/0",
    )
    assert service.redis(settings).status == "fail"
