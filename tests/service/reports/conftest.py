"""Answers in place of a service, for the commands of reports."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.client import AssayClient

JOB = "01jd3q0x5v8f7m2n9k4t6w1z0y"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Jobs and options of every report and table that a command asks for; their text is two lines."""
    found: list[tuple[Any, dict[str, Any]]] = []

    def answer(_: AssayClient, jobs: Any, **options: Any) -> str:
        found.append((jobs, options))
        return "a\r\nb\n"

    monkeypatch.setattr(AssayClient, "report", answer)
    monkeypatch.setattr(AssayClient, "table", answer)
    return found
