"""Copies a published data set to a node: each file compared with its hash, resumed where a copy broke off.

A copy is made beside its place and moved there whole. Processes of a node that want the same set wait for the
one that copies.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypedDict

from assay.service.files.data_store import MAX_LINE, PublishedSet, TreeFile, read_tree
from assay.workers.staging.scratch import Scratch, StagingFailed
from assay.workers.staging.sources import DataSource

SMALL, TOGETHER, TOGETHER_BYTES = 2**20, 256, 2**24  # bytes of a small file; of a request files and bytes
AT_ONCE, AHEAD = 4, 16  # requests, and those that wait
CHUNK = 2**20
StageReport = Callable[[str, int, int], None]


class StageOptions(TypedDict, total=False):
    """The options of `stage`, for those who hand them on."""

    limit: int
    report: StageReport
    interrupted: Callable[[], bool]


def stage(
    scratch: Scratch,
    source: DataSource,
    name: str,
    *,
    limit: int = 0,
    report: StageReport = lambda name, done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> PublishedSet:
    """Brings a data set to the node, unless it is there; `limit` as in `Scratch.make_room`.

    `report` gets name, bytes done, and all. Raises StagingFailed; NotFound, OSError and LEDGER_AWAY as the
    source. What has come stays for the next call.
    """
    one = source.find(name)
    with scratch.making(one.sha256, interrupted):
        with scratch.using([name]) as used:
            before = used.get(name)
        if before is not None and before.sha256 == one.sha256:
            return before
        if before is None:
            scratch.check_place(name)
        scratch.clear()
        scratch.make_room(one, limit)
        copy = _Copy(source, one, scratch.part(one.sha256), report, interrupted)
        copy.make()
        if before is not None and not scratch.remove(name):
            raise StagingFailed(
                f"an earlier content of {name} is in use; the new one is fetched: try again later"
            )
        scratch.place(copy.files, one)
        shutil.rmtree(scratch.part(one.sha256), ignore_errors=True)
    return one


class _Copy:
    """A copy in the making."""

    def __init__(
        self,
        source: DataSource,
        one: PublishedSet,
        folder: Path,
        report: StageReport,
        interrupted: Callable[[], bool],
    ) -> None:
        self._source, self._set, self._folder = source, one, folder
        self._report, self._interrupted = report, interrupted
        self.files = folder / "files"
        self._resumed = self.files.is_dir()
        self._done, self._lock = 0, threading.Lock()
        self._stopped = False

    def make(self) -> None:
        """Fetches all that is missing."""
        self.files.mkdir(parents=True, exist_ok=True)
        tree = self._tree()
        if self._resumed:
            self._remove_others(tree)
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="stage") as pool:
            try:
                for group in self._groups(tree):
                    running.add(pool.submit(self._fetch, group))
                    while len(running) >= AHEAD:
                        running = self._settled(running)
                while running:
                    running = self._settled(running)
            finally:
                self._stopped = True
                for future in running:
                    future.cancel()
        sync(self._folder)

    def _settled(self, running: set[Future[None]]) -> set[Future[None]]:
        done, left = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        self._check()
        with self._lock:
            self._report(self._set.name, self._done, self._set.bytes)
        return left

    def _check(self) -> None:
        if self._stopped or self._interrupted():
            raise StagingFailed("interrupted")

    def _tree(self) -> Path:
        """The tree in a file, compared with its hash, and with what was said of it."""
        path, digest, size = self._folder / "tree", hashlib.sha256(), 0
        with self._source.tree(self._set) as chunks, path.open("wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > self._set.files * MAX_LINE:
                    raise StagingFailed(
                        f"the tree of {self._set.name} is larger than {self._set.files:,} files have"
                    )
                digest.update(chunk)
                file.write(chunk)
                self._check()
        if digest.hexdigest() != self._set.sha256:
            raise StagingFailed(
                f"the tree of {self._set.name} has the hash {digest.hexdigest()}, published was"
                f" {self._set.sha256}"
            )
        try:
            sizes = [one.size for one in _listed(path)]
        except ValueError as error:
            raise StagingFailed(f"{self._set.name} is refused: {error}") from error
        if (len(sizes), sum(sizes)) != (self._set.files, self._set.bytes):
            said, has = (
                f"{self._set.files:,} files of {self._set.bytes:,} bytes",
                f"{len(sizes):,} of {sum(sizes):,}",
            )
            raise StagingFailed(f"{self._set.name} is refused: its tree has {has}, not {said}")
        return path

    def _remove_others(self, tree: Path) -> None:
        """Removes what is no file of the tree: parts of files, or what another has left there."""
        wanted = {one.path for one in _listed(tree)}
        for path in self.files.rglob("*"):
            if path.is_symlink() or (path.is_file() and str(path.relative_to(self.files)) not in wanted):
                path.unlink()

    def _groups(self, tree: Path) -> Iterator[list[TreeFile]]:
        """What is missing, small files together."""
        held, size = list[TreeFile](), 0
        for one in _listed(tree):
            target = self.files / one.path
            if self._resumed and _is_whole(target, one):
                self._count(one.size)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if one.size > SMALL:
                yield [one]
                continue
            held.append(one)
            size += one.size
            if len(held) == TOGETHER or size >= TOGETHER_BYTES:
                yield held
                held, size = [], 0
        if held:
            yield held

    def _fetch(self, group: Sequence[TreeFile]) -> None:
        self._check()
        if group[0].size > SMALL:
            self._fetch_large(group[0])
            return
        with self._source.blobs(self._set, [one.sha256 for one in group]) as chunks:
            held = bytearray()
            for one in group:
                while len(held) < one.size and (chunk := next(chunks, b"")):
                    held += chunk
                content = bytes(held[: one.size])
                if len(content) < one.size or hashlib.sha256(content).hexdigest() != one.sha256:
                    raise self._broken(one)
                (self.files / one.path).write_bytes(content)
                del held[: one.size]
                self._count(one.size)

    def _fetch_large(self, one: TreeFile) -> None:
        """A file that goes on where an earlier call ended, and begins again where that was wrong."""
        part = self._folder / "blobs" / f"{one.sha256}-{hashlib.sha256(one.path.encode()).hexdigest()[:16]}"
        part.parent.mkdir(exist_ok=True)
        digest, size = _hashed(part) if part.exists() else (hashlib.sha256(), 0)
        if size == one.size and digest.hexdigest() == one.sha256:
            self._count(size)
            part.rename(self.files / one.path)
            return
        resumed = 0 < size < one.size
        if not resumed:
            digest, size = hashlib.sha256(), 0
        self._count(size)
        with (
            self._source.blob(self._set, one.sha256, size) as chunks,
            part.open("ab" if resumed else "wb") as file,
        ):
            for chunk in chunks:
                self._check()
                size += len(chunk)
                if size > one.size:
                    break
                digest.update(chunk)
                file.write(chunk)
                self._count(len(chunk))
        if size < one.size:
            raise OSError(f"{one.path} of {self._set.name} broke off at {size:,} of {one.size:,} bytes")
        if size > one.size or digest.hexdigest() != one.sha256:
            part.unlink()
            self._count(-size)
            if not resumed:
                raise self._broken(one)
            self._fetch_large(one)
            return
        part.rename(self.files / one.path)

    def _count(self, size: int) -> None:
        with self._lock:
            self._done += size

    def _broken(self, one: TreeFile) -> StagingFailed:
        return StagingFailed(
            f"{one.path} of {self._set.name} came with another content than {one.sha256}: the store is"
            " damaged; publish the set again"
        )


def sync(folder: Path) -> None:
    """Writes what the file system of a folder holds to its disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    except AttributeError:  # no Linux
        os.sync()
    finally:
        os.close(descriptor)


def _listed(tree: Path) -> Iterator[TreeFile]:
    with tree.open("rb") as file:  # a line of it may be as long as a tree
        yield from read_tree(iter(lambda: file.readline(MAX_LINE + 1), b""))


def _is_whole(path: Path, one: TreeFile) -> bool:
    return path.is_file() and path.stat().st_size == one.size and _hashed(path)[0].hexdigest() == one.sha256


def _hashed(path: Path) -> tuple[hashlib._Hash, int]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest, size
