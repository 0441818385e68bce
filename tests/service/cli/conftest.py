from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from tests.support.profiles import HOME, KEY, LAB, Assay
from tests.support.terminals import Make, Terminal


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Assay:
    for name in ("ASSAY_URL", "ASSAY_KEY"):
        monkeypatch.delenv(name, raising=False)

    def assay(*arguments: str) -> tuple[int, str, str]:
        code = main.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return assay


@pytest.fixture
def lab(assay: Assay) -> None:
    """Two profiles; `lab` is in use."""
    assay("config", "set", "url", HOME)
    assay("config", "set", "url", LAB, "--profile", "lab")
    assay("config", "set", "key", KEY, "--profile", "lab")
    assay("config", "use", "lab")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    found = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    yield found
    found.close()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, transport: Any, train_body: Make, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    return AssayClient("http://127.0.0.1", transport=transport).submit(train_body(name="tiny"))
