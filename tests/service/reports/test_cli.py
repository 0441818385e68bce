from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.cli.main import main
from tests.service.reports.conftest import JOB


@pytest.mark.parametrize("ending", ["csv", "html", "md", "tex"])
def test_ending_is_the_format(
    calls: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    target = tmp_path / f"report.{ending}"
    assert main(["report", JOB, "-o", str(target)]) == 0
    assert target.read_bytes() == b"a\r\nb\n"
    assert calls == [([JOB], {"tag": None, "format": ending, "adjust": "holm"})]
    assert capsys.readouterr().out == f"{target}\n"


def test_a_report_goes_to_standard_output_or_to_a_folder_that_is_there(
    calls: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", JOB, "--format", "md", "-o", "-"]) == 0
    assert capsys.readouterr().out == "a\r\nb\n"
    for command in (["report", JOB, "-o", "no/r.html"], ["plot", JOB, "--kind", "curve", "-o", "no/a.svg"]):
        with pytest.raises(SystemExit, match="2"):
            main(command)
        assert f"{command[-1]!r} given; allowed: a file in a folder that is there" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_table_is_printed_or_written(
    calls: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "--tag", "paper", "--rows", "epsilon", "--metric", "top1"]) == 0
    jobs, options = calls[0]
    assert (jobs, options["tag"], options["rows"], options["columns"]) == (None, "paper", "epsilon", "model")
    assert "a" in capsys.readouterr().out
    assert main(["table", JOB, "--format", "latex", "-o", str(tmp_path / "t.tex")]) == 0
    assert (tmp_path / "t.tex").is_file()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["report", JOB, "-o", "report.doc"], "allowed: .html, .md, .tex, .csv, .pdf"),
        (["report"], "give job ids, or --tag"),
        (["table", JOB, "--tag", "x"], "give job ids, or --tag"),
    ],
)
def test_wrong_usage(
    calls: list[Any], capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    assert main(arguments) == 2
    assert error in capsys.readouterr().err
    assert not calls
