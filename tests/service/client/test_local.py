"""A service of one's own that does not start says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.service.client import local
from assay.service.client.local import local_service
from assay.service.client.transport import Unreachable
from assay.service.contract.errors import InvalidSpec

POPEN = subprocess.Popen
LOGGED = "2026-11-26 11:01:35,865 INFO assay.service.access: GET /api/v1/jobs: 200 in 5.8 ms"


def starting(monkeypatch: pytest.MonkeyPatch, lines: list[str], code: int = 1) -> None:
    """Starts a program that says these lines in place of the service."""
    program = f"import sys; sys.stderr.write({chr(10).join(lines)!r}); sys.exit({code})"

    def start(command: list[str], **more: Any) -> Any:
        return POPEN([sys.executable, "-c", program], **more)

    monkeypatch.setattr(local.subprocess, "Popen", start)


def test_what_it_says_itself_is_shown_and_not_what_another_service_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "another Assay service (process 7) uses the state folder"
    starting(monkeypatch, [LOGGED, reason, LOGGED])
    said = pytest.raises(Unreachable, match=r"did not start: another Assay service \(process 7\)")
    with said as caught, local_service(tmp_path):
        pass
    assert "GET" not in str(caught.value)
    starting(monkeypatch, [LOGGED])
    with pytest.raises(Unreachable, match=r"did not start: 2026-11-26"), local_service(tmp_path / "b"):
        pass


def test_a_state_folder_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for state in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(InvalidSpec, match="state: cannot be the state folder"), local_service(state):
            pass


def test_a_service_that_takes_too_long_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(command: list[str], **more: Any) -> Any:
        return POPEN([sys.executable, "-c", "import time; time.sleep(600)"], **more)

    monkeypatch.setattr(local.subprocess, "Popen", start)
    monkeypatch.setattr(local, "START_SECONDS", 0.0)
    said = pytest.raises(Unreachable, match="did not start: it was not ready within 0 s; ")
    with said, local_service(tmp_path):
        pass
