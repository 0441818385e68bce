"""Files of a job, on a disk that several machines may share."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path
from typing import Any

import pytest

from assay.service.files.file_store import write_file
from assay.workers.jobs import artifacts

TEXT = "id,loss\r\nä,1\n"


def test_what_is_written_is_described_as_it_lies_there(tmp_path: Path) -> None:
    path = tmp_path / "job" / "table.csv"
    described = write_file(path, TEXT.encode())
    assert path.read_bytes() == TEXT.encode()
    assert described == artifacts.describe(path)
    assert described["sha256"] == hashlib.sha256(TEXT.encode()).hexdigest()
    assert described["media_type"] == "text/csv; charset=utf-8"
    assert [p.name for p in path.parent.iterdir()] == ["table.csv"]


def test_another_worker_that_writes_the_same_file_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS a file that another machine has just replaced cannot be read through the old handle."""
    real = Path.open

    def replaced(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode.startswith("r"):
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", replaced)
    assert write_file(tmp_path / "table.csv", TEXT.encode())["size"] == len(TEXT.encode())


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_file(tmp_path / "table.csv", TEXT.encode())
    assert list(tmp_path.iterdir()) == []
