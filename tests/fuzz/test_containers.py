"""A short, fixed run of the fuzz of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.containers import FORMATS, attempt, fuzz


@pytest.mark.parametrize("name", FORMATS)
def test_changed_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    read, make = FORMATS[name]
    assert attempt(read, make(), tmp_path / "file"), "the unchanged one is read"
    fuzz(read, make(), tmp_path / "file", 150, 0)
