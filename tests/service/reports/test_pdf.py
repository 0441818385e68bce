"""Reports as PDF, by a browser of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.cli.main import main
from assay.service.reports import pdf
from tests.service.reports.conftest import JOB


def fake_browser(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """The only browser on the path, a shell script that gets Chromium's arguments."""
    program = folder / "bin" / "google-chrome"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(pdf, "PROGRAMS", ("google-chrome",))


PRINTS = """\
for one in "$@"; do case "$one" in
  --print-to-pdf=*) to="${one#*=}";; file:*) from="${one#file://}";;
esac; done
{ printf '%%PDF-1.4 '; cat "$from"; } > "$to\""""


@pytest.mark.parametrize(
    "arguments", [["-o", "r.pdf"], ["--format", "pdf", "-o", "r.pdf"], ["--format", "pdf"]]
)
def test_a_pdf_is_printed_by_the_browser_of_the_machine(
    calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fake_browser(tmp_path, monkeypatch, PRINTS)
    assert main(["report", JOB, *arguments]) == 0
    target = tmp_path / ("r.pdf" if "-o" in arguments else "report.pdf")
    assert target.read_bytes() == b"%PDF-1.4 a\r\nb\n"
    assert calls[0][1]["format"] == "html"


def test_without_a_browser_the_error_says_what_was_looked_for_and_asks_no_service(
    calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["report", JOB, "-o", "r.pdf"]) == 2
    said = capsys.readouterr().err
    assert "looked for: chromium, chromium-browser, google-chrome, google-chrome-stable, chrome" in said
    assert "ASSAY_BROWSER" in said
    monkeypatch.setenv("ASSAY_BROWSER", "/no/such")
    assert main(["report", JOB, "-o", "r.pdf"]) == 2
    assert "ASSAY_BROWSER: '/no/such' is no program" in capsys.readouterr().err
    assert calls == []
    assert not (tmp_path / "r.pdf").exists()


def test_a_browser_that_prints_nothing_is_quoted(
    calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fake_browser(tmp_path, monkeypatch, "echo no display >&2; exit 7")
    assert main(["report", JOB, "-o", "r.pdf"]) == 2
    assert "did not print the report (exit code 7): no display" in capsys.readouterr().err
    assert main(["report", JOB, "--table", "--format", "pdf"]) == 2
    assert "--format pdf is of a report" in capsys.readouterr().err
    assert not (tmp_path / "r.pdf").exists()
