"""Files of jobs in a folder: written whole, by job and name, and read up to a limit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from assay.service.files.file_store import FolderFiles, read_bounded

CONTENT = b"12345"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def test_a_file_is_written_listed_read_and_removed(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    written = files.write("job", "x.csv", CONTENT)
    assert (written["name"], written["size"], written["sha256"]) == ("x.csv", 5, SHA256)
    assert written["media_type"] == "text/csv; charset=utf-8"
    assert ([*files.jobs()], [*files.sizes("job")], [*files.sizes("other")]) == (["job"], ["x.csv"], [])
    assert files.holds("job", "x.csv", SHA256, 5)
    assert not files.holds("job", "x.csv", SHA256, 4)
    with pytest.raises(FileNotFoundError):
        files.holds("job", "y.csv", SHA256, 5)
    files.remove("job", "x.csv")
    files.remove("job", "x.csv")
    assert [*files.sizes("job")] == []
    assert (files.clear("job"), files.clear("job"), [*files.jobs()]) == (True, False, [])


def test_a_name_that_is_taken_is_left_to_its_first_writer(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    files.write("job", "x.csv", CONTENT, once=True)
    with pytest.raises(FileExistsError):
        files.write("job", "x.csv", b"other", once=True)
    assert read_bounded(files, "job", "x.csv", "", 5) == CONTENT
    assert [*files.sizes("job")] == ["x.csv"]


def test_a_local_file_is_moved_to_its_job(tmp_path: Path) -> None:
    files, source = FolderFiles(tmp_path), tmp_path / "upload"
    source.write_bytes(CONTENT)
    for path in (source, tmp_path / "job" / "x.csv"):  # where it belongs it stays
        files.put(path, "job", "x.csv", SHA256)
    assert (source.exists(), read_bounded(files, "job", "x.csv", SHA256, 5)) == (False, CONTENT)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    files.write("job", "x.csv", CONTENT)
    with pytest.raises(OSError, match="has more than 4 bytes"):
        read_bounded(files, "job", "x.csv", SHA256, 4)


def test_a_folder_that_takes_no_file_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert FolderFiles(tmp_path / "file").fault() == "not writable"
    assert FolderFiles(tmp_path / "new").fault() == ""
    assert [*FolderFiles(tmp_path / "new").jobs()] == []
