"""Files of jobs are opened in their own folder, and nothing else is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.service.files.job_files import is_job_file, media_type_of, open_job_file


@pytest.mark.parametrize(
    "name", ["a", "outcomes-000-pgd.csv", "log 1.csv", "weights_ema.safetensors", "a" * 200]
)
def test_names_of_files(name: str) -> None:
    assert is_job_file(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../a", "a/b", "/a", "a\\b", ".hidden", "-a", " a", "a\0", "a\n", "a\r\nb", "a\x1b"),
        *("<b>", "a'b", 'a"b', "ä", "a\u202eb", "a" * 201),
    ],
)
def test_no_names_of_files(name: str, tmp_path: Path) -> None:
    assert not is_job_file(name)
    with pytest.raises(OSError, match="is no name of a job's file"):
        open_job_file(tmp_path, name)


def test_media_types_are_of_the_suffix() -> None:
    assert media_type_of("a.csv") == "text/csv; charset=utf-8"
    assert {media_type_of(name) for name in ("a.html", "a.js", "a", "a.csv.exe")} == {
        "application/octet-stream"
    }


def make_link(folder: Path, other: Path) -> None:
    (folder / "x.csv").symlink_to(other)


def make_second_name(folder: Path, other: Path) -> None:
    os.link(other, folder / "x.csv")


def make_pipe(folder: Path, other: Path) -> None:
    os.mkfifo(folder / "x.csv")


def make_folder(folder: Path, other: Path) -> None:
    (folder / "x.csv").mkdir()


def make_nothing(folder: Path, other: Path) -> None:
    """No file at all."""


@pytest.mark.parametrize("make", [make_link, make_second_name, make_pipe, make_folder, make_nothing])
def test_what_is_no_file_of_the_job_is_not_opened(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    other = tmp_path / "secret"
    other.write_text("secret")
    (tmp_path / "job").mkdir()
    make(tmp_path / "job", other)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"x\.csv"):
        open_job_file(tmp_path / "job", "x.csv")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.csv").write_text("secret")
    (tmp_path / "job").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="job"):
        open_job_file(tmp_path / "job", "x.csv")
