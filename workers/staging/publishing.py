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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from assay.service.contract.times import iso
from assay.service.files.blobs import Blobs
from assay.service.files.data_store import MAX_FILES, DataStore, PublishedSet, TreeFile, path_fault
from assay.service.submission.data_folders import check_folder, check_inside, is_ignored
from assay.workers.staging.scratch import write_record
from assay.workers.staging.staging import sync
from assay.workers.staging.withdrawal import writing
from assay.workers.weights.pulled import PulledWeights

AT_ONCE, TOGETHER = 4, 256  # files that are copied, and that are handed out
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
    store: DataStore,
    *,
    state: Path,
    tenants: Sequence[str] = (),
    pulled: PulledWeights | None = None,
    report: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> PublishedSet:
    """Publishes a folder of the data root to `tenants`, by default to every tenant.

    `pulled`: weights that the folder has. `report` gets the name, bytes done, and all. Raises ValueError
    with all names that are refused; OSError.
    """
    problem = check_folder(name, root, local=True)
    if (why := problem and problem.message) or (why := path_fault(name)):
        raise ValueError(f"{name!r} {why}")
    found = sorted(_files(root, root / name), key=lambda one: one.path.encode())
    if not 0 < len(found) <= MAX_FILES:
        raise ValueError(f"{name!r} has {len(found):,} files; allowed: 1 to {MAX_FILES:,}")
    total = sum(one.size for one in found)
    with writing(store, alone=False):
        files, done = list[TreeFile](), 0
        for one in _stored(root / name, found, store.blobs, state):
            files.append(one)
            done += one.size
            report(name, done, total)
        tree = b"".join(one.line for one in files)
        made = PublishedSet(
            name=name if pulled is None else pulled.reference,
            sha256=hashlib.sha256(tree).hexdigest(),
            files=len(files),
            bytes=total,
            published_at=iso(time.time()),
            tenants=tuple(sorted({*tenants})) or None,
            pulled=None if pulled is None else pulled.record,
        )
        index = b"".join(sorted({bytes.fromhex(one.sha256) for one in files}))
        _write(store.index(made.sha256), index)
        _write(store.tree(made.sha256), tree)
        sync(store.root)  # what the record names is then on the disk
        write_record(store.record(made.name), made)
    return made


def _stored(folder: Path, found: list[ListedFile], blobs: Blobs, state: Path) -> Iterator[TreeFile]:
    """The files of a folder, now in the store, in order. Raises ValueError: a file has changed meanwhile."""
    known = _Hashes(state, folder)

    def stored(one: ListedFile) -> str:
        sha256 = known.of(one)
        if sha256 is not None and blobs.holds(sha256, one.size):
            return sha256
        return blobs.add(folder / one.path, one.size, one.changed)

    with contextlib.closing(known), ThreadPoolExecutor(AT_ONCE, thread_name_prefix="publish") as pool:
        for start in range(0, len(found), TOGETHER):
            group = found[start : start + TOGETHER]
            for one, sha256 in zip(group, pool.map(stored, group), strict=True):
                known.keep(one, sha256)
                yield TreeFile(one.path, one.size, sha256)


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
        if self._new is not None and self.of(one) != sha256:
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


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    temporary.write_bytes(content)
    temporary.replace(path)
