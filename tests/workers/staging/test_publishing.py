"""A published set's hash is of names, sizes and contents; equal files are kept once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from assay.service.files.blobs import BlobFolder
from assay.service.files.data_store import DataStore, read_tree
from assay.workers.staging import publishing
from assay.workers.staging.publishing import publish
from tests.workers.staging.conftest import FILES, Publish, fill


def test_equal_files_are_kept_once(published: Publish, data_store: DataStore) -> None:
    one = published()
    assert (one.files, one.bytes) == (4, 3_000_009)
    blobs = {path.name: path for path in (data_store.root / "blobs").rglob("*") if path.is_file()}
    assert len(blobs) == 3
    with data_store.open_tree(one) as lines:
        files = {file.path: blobs[file.sha256].read_bytes() for file in read_tree(lines)}
    assert files == FILES
    assert data_store.find("birds") == one


@pytest.mark.parametrize("change", ["content", "name", "new", "gone"])
def test_every_change_has_another_hash(published: Publish, tmp_path: Path, change: str) -> None:
    folder, before = tmp_path / "origin" / "birds", published()
    assert published().sha256 == before.sha256
    if change == "content":
        (folder / "crow/1.png").write_bytes(b"ONE")
    if change == "name":
        (folder / "crow/1.png").rename(folder / "crow/3.png")
    if change == "new":
        (folder / "crow/9.png").write_bytes(b"one")
    if change == "gone":
        (folder / "wren/large.bin").unlink()
    assert (
        publish(tmp_path / "origin", "birds", DataStore(tmp_path / "other"), state=tmp_path / "s").sha256
        != before.sha256
    )


def test_only_changed_files_are_read_again(
    published: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    add = BlobFolder.add

    def noted(blobs: BlobFolder, file: Path, *rest: Any) -> str:
        read.append(file.name)
        return add(blobs, file, *rest)

    monkeypatch.setattr(BlobFolder, "add", noted)
    published()
    assert len(read) == 4
    with next((tmp_path / "state" / "data-hashes").iterdir()).open("a") as hashes:
        hashes.write('["half of a li')
    read.clear()
    published(files={"crow/4.png": b"four"})
    assert read == ["4.png"]


def test_what_a_tree_cannot_have_is_refused_all_at_once(tmp_path: Path, data_store: DataStore) -> None:
    root = tmp_path / "root"
    fill(root / "birds", {"a/\u202egnp.x": b"", "b\\c": b"", "fine": b""})
    with pytest.raises(ValueError, match=r"cannot be published: 'b.*backslash.*; 'a/.*cannot be seen"):
        publish(root, "birds", data_store, state=tmp_path)
    for name in ("../root/birds", "/etc", "none", ".git"):
        with pytest.raises(ValueError, match=r"must|no folder|part that is"):
            publish(root, name, data_store, state=tmp_path)
    assert data_store.sets() == []


def test_links_stay_below_the_data_root(tmp_path: Path, data_store: DataStore) -> None:
    root = tmp_path / "root"
    fill(root / "files", {"1.png": b"one"})
    (root / "birds").mkdir()
    os.symlink(root / "files", root / "birds" / "crow")
    os.symlink(root / "files", root / "birds" / "wren")
    fill(root / "birds", {".DS_Store": b"", "Thumbs.db": b""})
    assert publish(root, "birds", data_store, state=tmp_path).files == 2, "links are followed, litter is not"
    os.symlink(root, root / "birds" / "circle")
    with pytest.raises(ValueError, match="folder that it lies in"):
        publish(root, "birds", data_store, state=tmp_path)
    (root / "birds" / "circle").unlink()
    os.symlink("/etc/passwd", root / "birds" / "crow" / "2.png")
    with pytest.raises(ValueError, match="leads out of the data root"):
        publish(root, "birds", data_store, state=tmp_path)


def test_a_file_that_changes_meanwhile_is_refused(
    tmp_path: Path, data_store: DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = publishing._files

    def changing(root: Path, folder: Path) -> Any:
        files = [*found(root, folder)]
        (folder / "x").write_bytes(b"longer")
        return files

    monkeypatch.setattr(publishing, "_files", changing)
    fill(tmp_path / "root" / "birds", {"x": b"x"})
    with pytest.raises(ValueError, match="has changed while it was read"):
        publish(tmp_path / "root", "birds", data_store, state=tmp_path)
    assert data_store.sets() == []
    assert [path.name for path in data_store.root.rglob("*") if path.is_file()] == [".lock"]
