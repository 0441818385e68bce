"""Room on a node: the copy not used for longest goes first, a copy in use and somebody's folder never."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TextIO

import pytest

from assay.workers.staging import scratch as scratch_module
from assay.workers.staging.scratch import FOLDER, Scratch, StagingFailed
from assay.workers.staging.sources import FolderSource
from assay.workers.staging.staging import stage
from tests.workers.staging.conftest import Publish, fill

LIMIT = 25


@pytest.fixture
def scratch(tmp_path: Path, source: FolderSource, published: Publish) -> Scratch:
    """A node with two sets of ten bytes, `a` unused for longer, and a folder of somebody."""
    node = Scratch(tmp_path / "node")
    fill(node.root / "own", {"x": b"x" * 10})
    for number, name in enumerate(("a", "b", "c")):
        published(name, {"x": f"{name:10}".encode()})
        if name != "c":
            stage(node, source, name, limit=LIMIT)
            used(node, name, number)
    return node


def used(node: Scratch, name: str, at: float) -> None:
    os.utime(node.root / FOLDER / "locks" / name, (at, at))


def names(node: Scratch) -> set[str]:
    assert {path.name for path in node.root.iterdir()} == {FOLDER, "own", *node.staged()}
    return {*node.staged()}


def test_the_set_not_used_for_longest_goes_first(scratch: Scratch, source: FolderSource) -> None:
    stage(scratch, source, "c", limit=LIMIT)
    assert names(scratch) == {"b", "c"}
    stage(scratch, source, "a", limit=LIMIT)
    assert names(scratch) == {"a", "c"}
    stage(scratch, source, "b", limit=0)
    assert names(scratch) == {"a", "b", "c"}, "without a limit, the disk's room counts"
    assert not [*(scratch.root / FOLDER).glob("removed/*")]


def test_a_use_is_remembered(scratch: Scratch, source: FolderSource) -> None:
    with scratch.using(["a/below", "none"]):
        pass
    stage(scratch, source, "c", limit=LIMIT)
    assert names(scratch) == {"a", "c"}


def test_what_goes_while_its_lock_is_waited_for_is_not_kept(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, lock = Scratch(scratch.root), scratch._open

    def removed_first(name: str) -> TextIO:
        assert name == "b" or other.remove("a")
        return lock(name)

    monkeypatch.setattr(scratch, "_open", removed_first)
    with scratch.using(["a", "b"]) as kept:
        assert {*kept} == {"b"}
        assert not other.remove("b")


def test_what_comes_while_another_lock_is_waited_for_is_kept(
    scratch: Scratch, source: FolderSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, lock = Scratch(scratch.root), scratch._open

    def staged_first(name: str) -> TextIO:
        if name == "a":
            stage(other, source, "c", limit=0)
        return lock(name)

    monkeypatch.setattr(scratch, "_open", staged_first)
    with scratch.using(["a", "c"]) as kept:
        assert {*kept} == {"a", "c"}
        assert not other.remove("c")


def test_a_set_in_use_stays(scratch: Scratch, source: FolderSource) -> None:
    with scratch.using(["a"]):
        stage(Scratch(scratch.root), source, "c", limit=LIMIT)
        assert names(scratch) == {"a", "c"}
        with scratch.using(["c"]), pytest.raises(StagingFailed, match=r"no room for b.*allowed are 25 bytes"):
            stage(Scratch(scratch.root), source, "b", limit=LIMIT)
        assert names(scratch) == {"a", "c"}


def test_more_than_the_limit_is_refused_with_nothing_else_lost(
    scratch: Scratch, source: FolderSource
) -> None:
    with pytest.raises(StagingFailed, match="no room for c: it has 10 bytes"):
        stage(scratch, source, "c", limit=9)
    assert names(scratch) == {"a", "b"}


def test_a_full_disk_is_said(scratch: Scratch, source: FolderSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_module, "SPARE_BYTES", 2**60)
    with scratch.using(["a", "b"]), pytest.raises(StagingFailed, match="bytes on the disk"):
        stage(scratch, source, "c")


def test_an_abandoned_copy_goes_before_a_whole_one(
    scratch: Scratch, source: FolderSource, published: Publish
) -> None:
    one = published("d", {"x": b"d" * 10})
    scratch.make_room(one, 0)
    part = scratch.part(one.sha256)
    assert part.is_dir()
    with scratch.making(one.sha256, lambda: False):
        stage(Scratch(scratch.root), source, "c", limit=35)
        assert part.is_dir(), "a copy in the making is not abandoned"
        assert names(scratch) == {"b", "c"}
    stage(scratch, source, "a", limit=35)
    assert not part.exists()
    assert names(scratch) == {"a", "b", "c"}


def test_a_record_without_its_folder_says_nothing(scratch: Scratch, source: FolderSource) -> None:
    (scratch.root / "a").rename(scratch.root / FOLDER / "lost")
    assert {*scratch.staged()} == {"b"}
    stage(scratch, source, "a", limit=LIMIT)
    assert names(scratch) == {"a", "b"}
    (scratch.root / FOLDER / "sets" / "z.json").write_text("[]")
    assert names(scratch) == {"a", "b"}


def test_a_folder_in_the_place_of_a_copy_is_somebodys_own(scratch: Scratch, source: FolderSource) -> None:
    shutil.rmtree(scratch.root / "a")
    fill(scratch.root / "a", {"mine": b"x"})
    (scratch.root / "b" / "mine").touch()
    assert scratch.staged() == {}
    stage(scratch, source, "c", limit=LIMIT)
    for name in "ab":
        assert scratch.remove(name)
        assert (scratch.root / name / "mine").exists()
    with pytest.raises(StagingFailed, match="'a' of the data root is not staged: move it"):
        stage(scratch, source, "a", limit=LIMIT)


def test_a_set_within_a_set_is_refused(scratch: Scratch, source: FolderSource, published: Publish) -> None:
    published("a/more", {"y": b"y"})
    with pytest.raises(StagingFailed, match="would lie in the staged data set 'a'"):
        stage(scratch, source, "a/more")


def test_a_root_without_copies_has_nothing_to_keep(tmp_path: Path) -> None:
    node = Scratch(tmp_path)
    assert node.staged() == {}
    with node.using(["birds"]):
        assert [*tmp_path.iterdir()] == []
