"""What `assay evaluate` and `assay.evaluate` refuse before a service is started, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import assay
from assay.service.cli.main import main
from assay.service.client.evaluation import write_report
from assay.service.contract.errors import InvalidSpec


@pytest.mark.parametrize("name", ["r.doc", "report", "absent/r.md"])
def test_a_report_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    target = str(tmp_path / name)
    assert main(["evaluate", "checkpoint:x", "--data", "digits", "--report", target, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --report: ")
    assert target in said
    with pytest.raises(InvalidSpec, match="report: "):
        assay.evaluate("checkpoint:x", "digits", report=target)


def test_the_ending_of_a_report_is_its_format(tmp_path: Path) -> None:
    class Client:
        def report(self, job: str, **more: Any) -> str:
            return f"{job} {more['format']}\r\n"

    for ending in ("html", "md", "tex", "csv"):
        target = tmp_path / f"r.{ending}"
        write_report(Client(), "x", target)  # type: ignore[arg-type]
        assert target.read_bytes() == f"x {ending}\r\n".encode()
