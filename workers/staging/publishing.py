"""Puts a folder of the data root into the store of data: each file read once, equal files kept once.

Hashes are kept by path, size and time beside the state, so that a set that has grown is read where it has.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.service.contract.times import iso
from assay.service.files.data_store import (
    MAX_FILES,
    BlobFolder,
    DataStore,
    PublishedSet,
    TreeFile,
    path_fault,
)
from assay.service.submission.data_folders import check_folder, check_inside, is_ignored
from assay.workers.staging.scratch import write_record
from assay.workers.staging.staging import sync

CHUNK = 2**20
FAULTS_SHOWN = 10
HASHES = "data-hashes"  # in the state folder, beside the hashes of contents


@dataclass(frozen=True)
class ListedFile:
    """A file of a folder; its time of change in nanoseconds."""

    path: str  # below the folder
    size: int
    changed: int


def publish(
    root: Path,
    name: str,
    store: Path,
    *,
    state: Path,
    tenants: Sequence[str] = (),
    report: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> PublishedSet:
    """Publishes a folder of the data root to `tenants`, by default to every tenant.

    `report` gets the name, bytes done, and all. Raises ValueError with all names that are refused; OSError.
    """
    problem = check_folder(name, root, local=True)
    if (why := problem and problem.message) or (why := path_fault(name)):
        raise ValueError(f"{name!r} {why}")
    found = list(_files(root, root / name))
    if not 0 < len(found) <= MAX_FILES:
        raise ValueError(f"{name!r} has {len(found):,} files; allowed: 1 to {MAX_FILES:,}")
    total, done = sum(one.size for one in found), 0
    blobs, known = BlobFolder(store / "blobs"), _Hashes(state, root / name)
    files = list[TreeFile]()
    with contextlib.closing(known):
        for one in sorted(found, key=lambda one: one.path.encode()):
            sha256 = known.of(one)
            if sha256 is None or not _has(blobs, sha256, one.size):
                sha256 = _copy(root / name / one.path, one, blobs)
                known.keep(one, sha256)
            files.append(TreeFile(one.path, one.size, sha256))
            done += one.size
            report(name, done, total)
    tree = b"".join(one.line for one in files)
    made = PublishedSet(
        name=name,
        sha256=hashlib.sha256(tree).hexdigest(),
        files=len(files),
        bytes=total,
        published_at=iso(time.time()),
        tenants=tuple(sorted({*tenants})) or None,
    )
    place = DataStore(store)
    index = b"".join(sorted({bytes.fromhex(one.sha256) for one in files}))
    _write(place.tree(made.sha256).with_suffix(".index"), index)
    _write(place.tree(made.sha256), tree)
    sync(store)  # what the record names is then on the disk
    write_record(place.record(name), made)
    return made


class _Hashes:
    """Known hashes of a folder's files; what cannot be kept is read again."""

    def __init__(self, state: Path, folder: Path) -> None:
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        self._file = state / HASHES / f"files-{name}.jsonl"
        self._known = dict(self._read())
        self._new = None
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._new = self._file.open("a")

    def of(self, one: ListedFile) -> str | None:
        """The hash of a file that has not changed since."""
        return self._known.get((one.path, one.size, one.changed))

    def keep(self, one: ListedFile, sha256: str) -> None:
        """Keeps the hash of a file."""
        if self._new is not None:
            self._new.write(json.dumps([one.path, one.size, one.changed, sha256]) + "\n")

    def close(self) -> None:
        """Writes what is kept."""
        if self._new is not None:
            self._new.close()

    def _read(self) -> Iterator[tuple[tuple[str, int, int], str]]:
        with contextlib.suppress(OSError), self._file.open() as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # the last line of a process that was killed
                    path, size, changed, sha256 = json.loads(line)
                    yield (path, size, changed), sha256


def _files(root: Path, folder: Path) -> Iterator[ListedFile]:
    """All files of a folder but those that no reader reads. Raises ValueError with the names at fault."""
    base, faults = Path(os.path.realpath(root)), list[str]()
    for place, below, names in os.walk(folder, followlinks=True):
        check_inside(Path(place), base)
        if Path(os.path.realpath(Path(place).parent)).is_relative_to(os.path.realpath(place)):
            raise ValueError(f"{place} is a symbolic link to a folder that it lies in")
        below[:] = sorted(one for one in below if not is_ignored(one))
        for name in sorted(one for one in names if not is_ignored(one)):
            file = Path(place, name)
            check_inside(file, base)
            path = file.relative_to(folder).as_posix()
            if (problem := path_fault(path)) is not None:
                faults.append(f"{path!r} {problem}")
            elif file.is_file():
                facts = file.stat()
                yield ListedFile(path, facts.st_size, facts.st_mtime_ns)
    if faults:
        more = f"; and {len(faults) - FAULTS_SHOWN:,} more" if len(faults) > FAULTS_SHOWN else ""
        raise ValueError(f"files of {folder} cannot be published: {'; '.join(faults[:FAULTS_SHOWN])}{more}")


def _has(blobs: BlobFolder, sha256: str, size: int) -> bool:
    try:
        return blobs.path(sha256).stat().st_size == size
    except OSError:
        return False


def _copy(file: Path, one: ListedFile, blobs: BlobFolder) -> str:
    """Copies a file into the store; its hash. Raises ValueError: it has changed meanwhile."""
    temporary = blobs.path("new").with_name(f".{uuid.uuid4().hex}")
    temporary.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    try:
        with file.open("rb") as source, temporary.open("xb") as target:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                target.write(chunk)
        facts = file.stat()
        if (facts.st_size, facts.st_mtime_ns) != (one.size, one.changed):
            raise ValueError(f"{file} has changed while it was read: publish the set again")
        place = blobs.path(digest.hexdigest())
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    temporary.write_bytes(content)
    temporary.replace(path)
