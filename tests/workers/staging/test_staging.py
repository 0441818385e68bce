"""Staging: whole and verified or not there, resumed, once per node, and nothing leaves the data root."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.errors import NotFound
from assay.service.files.data_store import DataStore, PublishedSet, TreeFile
from assay.workers.staging import staging
from assay.workers.staging.scratch import FOLDER, Scratch, StagingFailed
from assay.workers.staging.sources import FolderSource
from assay.workers.staging.staging import stage
from tests.workers.staging.conftest import FILES, Publish, contents


class Counting(FolderSource):
    """Counts small files that are fetched, and keeps where large files began."""

    def __init__(self, data_store: DataStore) -> None:
        super().__init__(data_store)
        self.small, self.starts = 0, list[int]()

    @contextmanager
    def blob(self, one: PublishedSet, sha256: str, start: int) -> Iterator[Iterator[bytes]]:
        self.starts.append(start)
        with super().blob(one, sha256, start) as chunks:
            yield chunks

    @contextmanager
    def blobs(self, one: PublishedSet, sha256: Sequence[str]) -> Iterator[Iterator[bytes]]:
        self.small += len(sha256)
        with super().blobs(one, sha256) as chunks:
            yield chunks


class Hostile(FolderSource):
    """A service that sends any tree and any contents."""

    def __init__(self, *files: TreeFile, **changes: Any) -> None:
        self.lines = b"".join(one.line for one in files)
        size = sum(one.size for one in files)
        self.one = PublishedSet("birds", sha256(self.lines).hexdigest(), max(len(files), 1), size, "")
        self.one = replace(self.one, **changes)
        self.content = b"x"

    def find(self, name: str) -> PublishedSet:
        return self.one

    @contextmanager
    def tree(self, one: PublishedSet) -> Iterator[Iterator[bytes]]:
        yield iter([self.lines])

    @contextmanager
    def blob(self, one: PublishedSet, sha256: str, start: int) -> Iterator[Iterator[bytes]]:
        yield (self.content * 100_000 for _ in range(1_000_000))

    @contextmanager
    def blobs(self, one: PublishedSet, sha256: Sequence[str]) -> Iterator[Iterator[bytes]]:
        yield iter([self.content])


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    (tmp_path / "node").mkdir()
    return Scratch(tmp_path / "node")


def left(scratch: Scratch) -> set[str]:
    return {path.name for path in scratch.root.iterdir()} - {FOLDER}


def test_a_set_is_copied_once(scratch: Scratch, data_store: DataStore, published: Publish) -> None:
    one, source, told = published(), Counting(data_store), list[tuple[str, int, int]]()
    assert stage(scratch, source, "birds", report=lambda *given: told.append(given)) == one
    assert contents(scratch.root / "birds") == FILES
    assert scratch.staged() == {"birds": one}
    assert told[-1] == ("birds", one.bytes, one.bytes)
    assert not list((scratch.root / FOLDER / "parts").iterdir())
    stage(scratch, source, "birds")
    assert (source.small, source.starts) == (3, [0])


def test_an_unknown_set_has_the_nearest_name(
    scratch: Scratch, source: FolderSource, published: Publish
) -> None:
    published()
    with pytest.raises(NotFound, match="'bird' is published; there is birds"):
        stage(scratch, source, "bird")


def test_a_folder_of_somebody_is_not_touched(
    scratch: Scratch, source: FolderSource, published: Publish
) -> None:
    published()
    (scratch.root / "birds").mkdir()
    with pytest.raises(StagingFailed, match="is not staged"):
        stage(scratch, source, "birds")
    (scratch.root / "birds").rmdir()
    (scratch.root / "birds").symlink_to("/nowhere")
    with pytest.raises(StagingFailed, match="is not staged"):
        stage(scratch, source, "birds")
    (scratch.root / "out").symlink_to("/tmp")
    published("out/birds")
    with pytest.raises(StagingFailed, match="leads out of the data root"):
        stage(scratch, source, "out/birds")


def test_a_new_content_takes_the_place_of_an_old_one_that_is_free(
    scratch: Scratch, source: FolderSource, published: Publish
) -> None:
    published()
    stage(scratch, source, "birds")
    two = published(files={"new.png": b"new"})
    with scratch.using(["birds"]), pytest.raises(StagingFailed, match="earlier content of birds is in use"):
        stage(scratch, source, "birds")
    assert "new.png" not in contents(scratch.root / "birds")
    assert stage(scratch, source, "birds") == two
    assert contents(scratch.root / "birds") == {**FILES, "new.png": b"new"}


@pytest.mark.parametrize("name", ["crow/2.png", "wren/large.bin"])
def test_a_corrupted_blob_is_no_data_set(
    scratch: Scratch, data_store: DataStore, source: FolderSource, published: Publish, name: str
) -> None:
    published()
    blob = next(p for p in data_store.root.rglob(sha256(FILES[name]).hexdigest()))
    blob.write_bytes(FILES[name][:-1] + b"!")
    with pytest.raises(StagingFailed, match=f"{name} of birds came with another content"):
        stage(scratch, source, "birds")
    assert (left(scratch), scratch.staged()) == (set(), {})
    blob.write_bytes(FILES[name])
    stage(scratch, source, "birds")
    assert contents(scratch.root / "birds") == FILES


KILLED = """
import os, signal, sys
from pathlib import Path
from assay.service.files.data_store import DataStore
from assay.workers.staging import staging
from assay.workers.staging.scratch import Scratch
from assay.workers.staging.sources import FolderSource

class Killing(FolderSource):
    def blob(self, one, sha256, start):
        wait = super().blob(one, sha256, start)
        class Chunks:
            def __enter__(self):
                chunks = wait.__enter__()
                def some():
                    yield next(chunks)
                    yield b""
                    os.kill(os.getpid(), signal.SIGKILL)
                return some()
            def __exit__(self, *_):
                pass
        return Chunks()

staging.AT_ONCE = staging.TOGETHER = 1
staging.stage(Scratch(Path(sys.argv[1])), Killing(DataStore(Path(sys.argv[2]))), "birds")
"""


@pytest.mark.slow
def test_a_killed_copy_is_never_seen_and_goes_on(
    scratch: Scratch, data_store: DataStore, published: Publish
) -> None:
    one = published()
    killed = subprocess.run([sys.executable, "-c", KILLED, scratch.root, data_store.root], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (left(scratch), scratch.staged()) == (set(), {})
    part = scratch.part(one.sha256)
    (part / "files" / "left.behind").write_bytes(b"x")
    (part / "files" / "crow" / "2.png").write_bytes(b"cut")
    source = Counting(data_store)
    stage(scratch, source, "birds")
    assert contents(scratch.root / "birds") == FILES
    assert source.starts == [2**20], "the large file goes on where it broke off"
    assert source.small == 1, "only the damaged small file is fetched again"


def test_a_resumed_file_that_was_wrong_begins_again(
    scratch: Scratch, data_store: DataStore, published: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = published()
    path = "wren/large.bin"
    name = f"{sha256(FILES[path]).hexdigest()}-{sha256(path.encode()).hexdigest()[:16]}"
    part = scratch.part(one.sha256) / "blobs" / name
    part.parent.mkdir(parents=True)
    part.write_bytes(b"y" * 100)
    source, told = Counting(data_store), list[int]()
    stage(scratch, source, "birds", report=lambda name, done, total: told.append(done))
    assert (source.starts, told[-1]) == ([100, 0], one.bytes)
    assert contents(scratch.root / "birds") == FILES


def test_two_calls_on_a_node_copy_once(
    scratch: Scratch, data_store: DataStore, published: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, source, going = published(), Counting(data_store), threading.Event()
    waiting = threading.Event()

    def report(name: str, done: int, total: int) -> None:
        waiting.set()
        assert going.wait(60)

    results: list[PublishedSet] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(stage(Scratch(scratch.root), source, "birds", report=report))
        )
        for _ in range(2)
    ]
    threads[0].start()
    assert waiting.wait(60)
    threads[1].start()
    going.set()
    for thread in threads:
        thread.join(60)
    assert results == [one, one]
    assert (source.small, source.starts) == (3, [0])


def test_whoever_waits_may_be_interrupted(scratch: Scratch, source: FolderSource, published: Publish) -> None:
    one = published()
    with scratch.making(one.sha256, lambda: False), pytest.raises(StagingFailed, match="interrupted"):
        stage(Scratch(scratch.root), source, "birds", interrupted=lambda: True)
    with pytest.raises(StagingFailed, match="interrupted"):
        stage(scratch, source, "birds", interrupted=lambda: True)
    assert left(scratch) == set()


def test_two_nodes_of_one_data_root_do_not_disturb_each_other(
    tmp_path: Path, source: FolderSource, published: Publish
) -> None:
    published()
    nodes = [Scratch(tmp_path / "one"), Scratch(tmp_path / "two")]
    threads = [threading.Thread(target=stage, args=(node, source, "birds")) for node in nodes]
    for node, thread in zip(nodes, threads, strict=True):
        node.root.mkdir()
        thread.start()
    for node, thread in zip(nodes, threads, strict=True):
        thread.join(60)
        assert contents(node.root / "birds") == FILES


ONE = sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (Hostile(TreeFile("../evil", 1, ONE)), "hidden"),
        (Hostile(TreeFile("/tmp/evil", 1, ONE)), "empty"),
        (Hostile(TreeFile("a/.assay-staged/x", 1, ONE)), "hidden"),
        (Hostile(TreeFile("fdp.\u202egnp", 1, ONE)), "cannot be seen"),
        (Hostile(TreeFile("x", 1, ONE), files=2), "its tree has 1 of 1"),
        (Hostile(TreeFile("x", 1, ONE), bytes=100), "its tree has 1 of 1"),
        (Hostile(TreeFile("x", 1, ONE), sha256="0" * 64), "published was"),
        (Hostile(*[TreeFile(f"{n:09d}" * 100, 1, ONE) for n in range(9)], files=1), "larger than 1 files"),
        (Hostile(TreeFile("x", 2, ONE)), "another content"),
        (Hostile(TreeFile("x", 2_000_000, ONE)), "another content"),
        (Hostile(TreeFile("x", 2**45, ONE)), "no room"),
    ],
    ids=range(11),
)
def test_a_hostile_service_leaves_nothing(
    scratch: Scratch, tmp_path: Path, source: Hostile, said: str
) -> None:
    with pytest.raises((StagingFailed, OSError), match=said):
        stage(scratch, source, "birds", limit=10**13)
    assert (left(scratch), scratch.staged()) == (set(), {})
    assert {path.name for path in tmp_path.iterdir()} == {"node"}


def test_a_file_is_no_folder_too(scratch: Scratch) -> None:
    with pytest.raises((FileExistsError, NotADirectoryError, IsADirectoryError)):
        stage(scratch, Hostile(TreeFile("x", 1, ONE), TreeFile("x/y", 1, ONE)), "birds")
    assert left(scratch) == set()


def test_more_than_was_said_is_not_read(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "SMALL", 10)
    source = Hostile(TreeFile("x", 100, ONE))
    with pytest.raises(StagingFailed, match="another content"):
        stage(scratch, source, "birds")
    assert sum(path.stat().st_size for path in scratch.root.rglob("*") if path.is_file()) < 1000


def test_a_line_as_long_as_a_tree_is_not_read(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.write_bytes(b"x" * 2**23)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="line 1 of the tree"):
            list(staging._listed(tree))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
