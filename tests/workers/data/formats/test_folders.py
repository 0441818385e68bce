from __future__ import annotations

from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, file_sha256, resolve_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "imagenet" / "val").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return tmp_path / "root"


@pytest.mark.parametrize("name", ["imagenet", "imagenet/val"])
def test_folders_below_the_root_are_found(root: Path, name: str) -> None:
    assert resolve_folder(root, name) == (root / name).resolve()


@pytest.mark.parametrize(
    "name",
    ["", "/etc", "..", "../outside", "imagenet/../..", "./imagenet", "a//b", "C:\\x", "a\\b", "a\x00b"],
)
def test_names_that_are_not_relative_folders_are_refused(root: Path, name: str) -> None:
    with pytest.raises(ValueError, match="folder"):
        resolve_folder(root, name, create=True)
    with pytest.raises(ValueError, match="folder"):  # even where nothing could be read
        resolve_folder(None, name)


def test_links_out_of_the_root_are_refused(root: Path) -> None:
    (root / "leak").symlink_to(root.parent / "outside")
    (root / "imagenet" / "up").symlink_to("../../outside")
    for name in ("leak", "imagenet/up", "leak/new"):
        with pytest.raises(ValueError, match="symbolic link"):
            resolve_folder(root, name, create=True)
    assert list((root.parent / "outside").iterdir()) == []


def test_links_inside_the_root_and_a_linked_root_are_followed(root: Path) -> None:
    (root / "alias").symlink_to("imagenet")
    linked = root.parent / "linked"
    linked.symlink_to(root)
    assert resolve_folder(linked, "alias") == (root / "imagenet").resolve()


def test_looping_links_do_not_hang(root: Path) -> None:
    (root / "loop").symlink_to("loop")
    with pytest.raises((ValueError, MissingData)):
        resolve_folder(root, "loop")
    check_inside(root / "loop", root.resolve())


def test_missing_folder_says_where_it_looked_and_what_is_there(root: Path) -> None:
    with pytest.raises(MissingData) as caught:
        resolve_folder(root, "imagenat")
    message = str(caught.value)
    assert str(root / "imagenat") in message
    assert "Did you mean 'imagenet'?" in message


def test_missing_root_says_how_to_set_it(root: Path) -> None:
    with pytest.raises(MissingData, match="Set the environment variable ASSAY_DATA_ROOT"):
        resolve_folder(None, "imagenet")
    with pytest.raises(MissingData, match="is not a directory"):
        resolve_folder(root / "nowhere", "imagenet", create=True)


def test_create_makes_the_folder(root: Path) -> None:
    assert resolve_folder(root, "new/one", create=True).is_dir()


def test_a_file_is_known_by_its_bytes_and_one_that_cannot_be_read_is_refused(root: Path) -> None:
    (root / "abc").write_bytes(b"abc")
    assert file_sha256(root / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(CorruptData, match=r"absent cannot be read \(No such file or directory\)$"):
        file_sha256(root / "absent")
