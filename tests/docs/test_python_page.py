"""Every block of docs/python.md runs, in order, against a real service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.running import RunningService

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
ADDRESS = "http://127.0.0.1:8000"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    return BLOCK.findall(PAGE.read_text())


def test_blocks_are_found() -> None:
    assert len(blocks()) == PAGE.read_text().count("```python") == 8


@pytest.mark.tutorial
@pytest.mark.trains
def test_every_block_runs(tmp_path: Path) -> None:
    service = RunningService(tmp_path / "state", ASSAY_WORKERS="2").start()
    try:
        program = tmp_path / "page.py"
        program.write_text("\n".join(blocks()).replace(ADDRESS, service.client.url))
        ran = subprocess.run(
            [sys.executable, str(program)], cwd=tmp_path, env=os.environ, capture_output=True, text=True
        )
    finally:
        service.close()
    assert ran.returncode == 0, ran.stderr
    assert "\\toprule" in ran.stdout
    assert "symvit\n" in ran.stdout, "the nearest name of the misspelt one"
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    assert "<html" in (tmp_path / "report.html").read_text()
