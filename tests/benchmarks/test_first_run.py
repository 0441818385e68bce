"""The record of a first run: its lines as they come, with seconds in place of the time of day."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from benchmarks import first_run


def test_lines_have_the_seconds_since_the_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 112.4)
    lines = ["2026-01-01T00:00:09Z example: running\n", "report: report.html\n"]
    assert list(first_run.stamped(iter(lines), 100.0)) == [
        "   12 s  example: running\n",
        "   12 s  report: report.html\n",
    ]


def test_a_command_is_recorded_with_its_code_and_both_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_URL", "http://127.0.0.1:9")
    code, text = first_run.recorded("echo a; echo b >&2; echo url${ASSAY_URL}; pwd; exit 3", tmp_path)
    assert code == 3
    assert [line.partition(" s  ")[2] for line in text.splitlines()] == ["a", "b", "url", str(tmp_path)]


def test_the_record_has_the_lines_and_the_module_of_the_quick_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick_start = (first_run.ROOT / "docs" / "quick-start.md").read_text("utf-8")
    assert all(line in quick_start for line in first_run.LINES)
    monkeypatch.setattr(first_run, "LINES", ("grep -c nn.Module my_models.py",))
    page = tmp_path / "page.md"
    assert first_run.main(["--file", str(page)]) == 0
    assert re.search(r"\n\$ grep -c nn.Module my_models.py\n +\d+ s  1\n$", page.read_text("utf-8"))
    monkeypatch.setattr(first_run, "LINES", ("exit 4",))
    assert first_run.main(["--file", str(page)]) == 1
    assert "exit 4: code 4" in capsys.readouterr().err


def test_the_processor_has_a_name() -> None:
    assert first_run.processor()
