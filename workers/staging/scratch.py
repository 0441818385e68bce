"""Copies of published data sets below a node's data root: which are there, which are in use, which go first.

    ROOT/NAME/                        a whole copy, and nothing else
    ROOT/.assay-staged/sets/KEY.json  what was staged there; without the folder it says nothing
    ROOT/.assay-staged/locks/KEY      shared by those who use the copy; its time is the last use. It has the
                                      inode and the time of the copy's folder
    ROOT/.assay-staged/parts/SHA256/  a copy in the making

Other folders are somebody's own and are never touched, also where they have taken the place of a copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from assay.service.files.data_store import PublishedSet, key_of, published_set

FOLDER = ".assay-staged"
POLL_SECONDS = 0.2
SPARE_BYTES = 2**26  # of the disk, left free


class StagingFailed(Exception):
    """A data set cannot be staged; the message says why, and the remedy."""


class Scratch:
    """The staged data sets of a data root; safe to use from any thread and from several processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._own = root / FOLDER
        self._lock = threading.Lock()
        self._read: tuple[int, dict[str, PublishedSet]] = (-1, {})

    def part(self, sha256: str) -> Path:
        """The folder in which a copy is made."""
        return self._own / "parts" / sha256

    def staged(self) -> dict[str, PublishedSet]:
        """The whole copies, by name."""
        with self._lock:
            try:
                written = (self._own / "sets").stat().st_mtime_ns
            except OSError:
                return {}
            if written != self._read[0]:
                self._read = (written, dict(self._records()))
            return {name: one for name, one in self._read[1].items() if self._is_copy(name)}

    @contextmanager
    def using(self, folders: Collection[str]) -> Iterator[dict[str, PublishedSet]]:
        """Keeps the copies that folders lie in from being removed; these, as they are while kept."""
        with contextlib.ExitStack() as held:
            kept: set[str] = set()
            while names := self._overlapping(folders) - kept:
                for name in sorted(names):
                    with contextlib.suppress(OSError):  # a data root that this worker cannot write
                        lock = held.enter_context(self._open(name))
                        fcntl.flock(lock, fcntl.LOCK_SH)
                        os.utime(lock.fileno())
                kept |= names
            # Read again: a copy may have gone, or may be another, while its lock was waited for.
            yield {name: one for name, one in self.staged().items() if name in kept}

    @contextmanager
    def making(self, key: str, interrupted: Callable[[], bool]) -> Iterator[None]:
        """Lets one process of the node do what has a key. Raises StagingFailed: interrupted."""
        with self._open(f".making-{key}") as lock:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if interrupted():
                    raise StagingFailed("interrupted")
                time.sleep(POLL_SECONDS)
            yield

    def check_place(self, name: str) -> None:
        """Raises StagingFailed: the folder is somebody's own, in another copy, or behind a link."""
        if (place := self.root / name).is_symlink() or place.exists():
            raise StagingFailed(
                f"the folder {name!r} of the data root is not staged: move it, or use it as it is"
            )
        if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(self.root)):
            raise StagingFailed(f"the folder {name!r} leads out of the data root through a symbolic link")
        for other in self.staged():
            if name.startswith(f"{other}/"):
                raise StagingFailed(f"{name!r} would lie in the staged data set {other!r}")

    def make_room(self, wanted: PublishedSet, limit: int) -> None:
        """Removes copies until another fits, those not used for longest first.

        `limit`: bytes of all copies, 0: what the disk has. Raises StagingFailed: what is used leaves no room.
        """
        part = self.part(wanted.sha256)
        with self._open(".room") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            while (problem := self._crowded(wanted, limit)) is not None:
                fits = not limit or wanted.bytes <= limit
                if not (fits and self._remove_one(wanted.name)):
                    raise StagingFailed(problem)
            write_record(part / "set.json", wanted)

    def _overlapping(self, folders: Collection[str]) -> set[str]:
        names = self.staged() if folders else ()
        return {name for name in names if any(_overlap(name, folder) for folder in folders)}

    def _crowded(self, wanted: PublishedSet, limit: int) -> str | None:
        taken = sum(one.bytes for one in self.staged().values() if one.name != wanted.name)
        taken += self._in_the_making(wanted.sha256)
        free = shutil.disk_usage(self._own).free - SPARE_BYTES + _bytes_in(self.part(wanted.sha256))
        if (not limit or taken + wanted.bytes <= limit) and wanted.bytes <= free:
            return None
        most = f"{limit:,} bytes for all copies" if limit else f"{free:,} bytes on the disk"
        return (
            f"no room for {wanted.name}: it has {wanted.bytes:,} bytes, copies in use or in the making"
            f" {taken:,}; allowed are {most}: raise --limit (ASSAY_STAGE_BYTES), or wait"
        )

    def place(self, made: Path, one: PublishedSet) -> None:
        """Puts a whole copy into its place, in one step for readers. Raises StagingFailed."""
        self.check_place(one.name)
        target = self.root / one.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._open(one.name) as lock:
            lock.truncate(0)
            lock.write(_facts(made))
        write_record(self._record(one.name), one)
        made.rename(target)

    def remove(self, name: str) -> bool:
        """Removes a copy, in one step for readers; False where it is in use."""
        with self._open(name) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if self._is_copy(name):
                self._discard(self.root / name)
            self._record(name).unlink(missing_ok=True)
        return True

    def clear(self) -> None:
        """Removes what interrupted removals have left."""
        shutil.rmtree(self._own / "removed", ignore_errors=True)

    def _remove_one(self, besides: str) -> bool:
        """Removes an abandoned part, else the copy not used for longest; False where all are in use."""
        for part in (self._own / "parts").glob("*"):
            with self._open(f".making-{part.name}") as lock, contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._discard(part)
                return True
        others = [name for name in self.staged() if name != besides]
        return any(map(self.remove, sorted(others, key=self._used_at)))

    def _discard(self, folder: Path) -> None:
        gone = self._own / "removed" / uuid.uuid4().hex
        gone.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _in_the_making(self, besides: str) -> int:
        parts = (path for path in (self._own / "parts").glob("*/set.json") if path.parent.name != besides)
        return sum(one.bytes for one in map(_read, parts) if one is not None)

    def _is_copy(self, name: str) -> bool:
        """Whether the folder is the copy that was placed there, as it was placed."""
        try:
            return _facts(self.root / name) == (self._own / "locks" / key_of(name)).read_text()
        except OSError:
            return False

    def _used_at(self, name: str) -> float:
        try:
            return (self._own / "locks" / key_of(name)).stat().st_mtime
        except OSError:
            return 0.0

    def _records(self) -> Iterator[tuple[str, PublishedSet]]:
        for path in sorted((self._own / "sets").glob("*.json")):
            one = _read(path)
            if one is not None and path == self._record(one.name):
                yield one.name, one

    def _record(self, name: str) -> Path:
        return self._own / "sets" / f"{key_of(name)}.json"

    def _open(self, name: str) -> TextIO:
        locks = self._own / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        return (locks / key_of(name)).open("a")


def write_record(path: Path, one: PublishedSet) -> None:
    """Writes what is published, or staged, in one step for readers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    temporary.write_text(json.dumps(one.record) + "\n")
    temporary.replace(path)


def _read(path: Path) -> PublishedSet | None:
    try:
        return published_set(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _facts(folder: Path) -> str:
    found = folder.stat()  # Inode numbers come again
    return f"{found.st_ino} {found.st_mtime_ns}"


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
