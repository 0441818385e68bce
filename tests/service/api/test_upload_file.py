"""Files on their way in are placed whole, or leave nothing."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
from pathlib import Path

import pytest

from assay.service.api.upload_file import Upload
from assay.service.contract.errors import TooLarge, Unavailable
from assay.service.files.file_store import FolderFiles


def test_what_came_is_placed_with_its_size_and_hash(tmp_path: Path) -> None:
    upload = Upload(tmp_path / "artifacts")
    for part in (b"abc", b"", b"def"):
        upload.write(part)
    upload.close()
    assert (upload.size, upload.sha256) == (6, hashlib.sha256(b"abcdef").hexdigest())
    upload.place(FolderFiles(tmp_path / "artifacts"), "job", "weights")
    upload.discard()
    assert [p.name for p in (tmp_path / "artifacts").rglob("*")] == ["job", "weights"]
    assert (tmp_path / "artifacts" / "job" / "weights").read_bytes() == b"abcdef"


def test_neither_an_upload_nor_its_folder_is_open_to_other_users(tmp_path: Path) -> None:
    """Before a job runs, too: the folder of all jobs may be passed through by evaluators of other users."""
    before = os.umask(0)
    try:
        upload = Upload(tmp_path)
        modes = [upload.path.stat().st_mode]
        upload.close()
        upload.place(FolderFiles(tmp_path), "job", "weights")
    finally:
        os.umask(before)
    modes += [path.stat().st_mode for path in (tmp_path / "job", tmp_path / "job" / "weights")]
    assert [stat.S_IMODE(mode) for mode in modes] == [0o640, 0o770, 0o640]


def test_what_is_discarded_is_gone(tmp_path: Path) -> None:
    upload = Upload(tmp_path)
    upload.write(b"abc")
    assert [p.name for p in tmp_path.iterdir()] == [upload.path.name]
    upload.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_does_not_take_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="could not be stored"):
        Upload(tmp_path / "file")
    upload = Upload(tmp_path / "folder")
    upload.close()
    with pytest.raises(Unavailable, match="could not be stored"):
        upload.place(FolderFiles(tmp_path / "file"), "job", "weights")


def test_more_than_there_is_room_for_is_refused(tmp_path: Path) -> None:
    upload = Upload(tmp_path, room=3)
    upload.write(b"abc")
    with pytest.raises(TooLarge, match="more than the 3 bytes"):
        upload.write(b"d")
    upload.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_also_when_the_file_is_closed_leaves_nothing(tmp_path: Path) -> None:
    upload = Upload(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # what is in the buffer can never be written
    try:
        upload.write(b"abc")
        with pytest.raises(Unavailable, match="could not be stored: File too large"):
            upload.close()
        upload.discard()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
