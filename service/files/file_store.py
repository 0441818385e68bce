"""Files of jobs, wherever they are kept: the protocol of stores, and the store in a folder.

A file has a job, a name, and the sha256 that its writer states. A store raises FileNotFoundError without such
a file, StoreAway where another try may succeed, and another OSError where the file is none of a job.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from assay.service.contract.records import ArtifactDescription
from assay.service.files.job_files import FOLDER_MODE, media_type_of, open_job_file

CHUNK = 1024**2
GOING = ".expired-"  # Prefix of folders that are being deleted
StoreKind = Literal["folder", "s3"]
StoreMethod = Literal["GET", "PUT"]


class StoreAway(OSError):
    """The store does not answer, is full, or gives other bytes than it was given: try again later."""

    def __init__(self, said: str) -> None:
        super().__init__(errno.EREMOTEIO, said)


@dataclass(frozen=True)
class Presigned:
    """A call to the store itself that needs no key, for a file and some minutes."""

    url: str
    headers: dict[str, str]  # to be sent as they are: they are signed, too


class FileStore(Protocol):
    """Files by job and name. `sha256` may be the beginning of a hash; empty: the caller checks the file."""

    @property
    def kind(self) -> StoreKind:
        """What it is."""
        ...

    def __hash__(self) -> int:
        """Stores are keys of caches."""
        ...

    def open(self, job: str, name: str, sha256: str) -> BinaryIO:
        """Opens a file of the local disk, which is seekable, with its content."""
        ...

    def fetch(self, job: str, name: str, sha256: str, target: Path) -> None:
        """Brings a file to a path of the local disk, whole or not at all."""
        ...

    def stage(self, source: Path) -> None:
        """Does the slow part of `put` ahead of it, outside of transactions; `unstage` follows."""
        ...

    def unstage(self, source: Path) -> None:
        """Undoes `stage` unless the file was put; raises nothing."""
        ...

    def put(self, source: Path, job: str, name: str, sha256: str, *, keep: bool = False) -> None:
        """Moves a local file, which `Upload` or an evaluator wrote, to its job, or copies it (`keep`)."""
        ...

    def write(self, job: str, name: str, data: bytes, *, once: bool = False) -> ArtifactDescription:
        """Writes a small file, and describes it; `once`: FileExistsError where its name is taken."""
        ...

    def holds(self, job: str, name: str, sha256: str, size: int) -> bool:
        """Whether a file has this content."""
        ...

    def sizes(self, job: str) -> dict[str, int]:
        """The bytes of each of a job's files, by name in order."""
        ...

    def remove(self, job: str, name: str) -> None:
        """Deletes a file, if it is there."""
        ...

    def clear(self, job: str) -> bool:
        """Deletes all files of a job; False without any."""
        ...

    def jobs(self) -> Iterator[str]:
        """Everything that may be a job with files."""
        ...

    def age(self, job: str) -> float:
        """Seconds since the newest write to a job's files; 0 where that is unknown."""
        ...

    def tidy(self) -> None:
        """Removes what killed processes left in the store."""
        ...

    def presign(self, method: StoreMethod, job: str, name: str, sha256: str, size: int) -> Presigned | None:
        """A call of another machine to the store itself; None: the file goes through the service."""
        ...

    def fault(self) -> str:
        """What is wrong with the store now, in a word; empty where it takes and gives back a file."""
        ...

    def wrong_files(self) -> int:
        """How many files gave other bytes than were stored, and no right bytes since; the log names them."""
        ...


@dataclass(frozen=True)
class FolderFiles:
    """A folder on a local disk or a shared volume, `<job>/<name>`."""

    root: Path
    kind: StoreKind = "folder"

    def open(self, job: str, name: str, sha256: str) -> BinaryIO:
        """As `FileStore`; the content is not read for its hash, which costs as much as sending it."""
        return open_job_file(self.root / job, name)

    def fetch(self, job: str, name: str, sha256: str, target: Path) -> None:
        """As `FileStore`: it is there."""

    def stage(self, source: Path) -> None:
        """As `FileStore`: a move is quick."""

    def unstage(self, source: Path) -> None:
        """As `FileStore`."""

    def put(self, source: Path, job: str, name: str, sha256: str, *, keep: bool = False) -> None:
        """As `FileStore`; `source` is in the same file system, and where it belongs it stays."""
        target = self.root / job / name
        if source != target:
            target.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            source.replace(target)

    def write(self, job: str, name: str, data: bytes, *, once: bool = False) -> ArtifactDescription:
        """As `FileStore`; several may write at once."""
        return write_file(self.root / job / name, data, once=once)

    def holds(self, job: str, name: str, sha256: str, size: int) -> bool:
        """As `FileStore`."""
        with open_job_file(self.root / job, name) as file:
            return digest_of(file) == (sha256, size)

    def sizes(self, job: str) -> dict[str, int]:
        """As `FileStore`; a file that goes meanwhile is left out."""
        found = {}
        for path in sorted((self.root / job).glob("*")):
            with contextlib.suppress(FileNotFoundError):
                found[path.name] = path.lstat().st_size
        return found

    def remove(self, job: str, name: str) -> None:
        """As `FileStore`."""
        (self.root / job / name).unlink(missing_ok=True)

    def clear(self, job: str) -> bool:
        """As `FileStore`. Renamed first: a retry of the job must not find half of its old files."""
        going = self.root / f"{GOING}{job}-{uuid.uuid4().hex}"
        try:
            (self.root / job).rename(going)
            shutil.rmtree(going)
        except FileNotFoundError:  # another process was faster
            return False
        return True

    def jobs(self) -> Iterator[str]:
        """As `FileStore`."""
        return (path.name for path in self.root.glob("*"))

    def age(self, job: str) -> float:
        """As `FileStore`."""
        return age_of(self.root / job)

    def tidy(self) -> None:
        """As `FileStore`."""
        for path in self.root.glob(f"{GOING}*"):
            shutil.rmtree(path, ignore_errors=True)

    def presign(self, method: StoreMethod, job: str, name: str, sha256: str, size: int) -> Presigned | None:
        """As `FileStore`: a folder takes no calls."""
        return None

    def fault(self) -> str:
        """As `FileStore`: only trying detects a full disk or a share that is away."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root) as file:
                file.write(b"x")
                file.flush()
        except OSError:
            return "not writable"
        return ""

    def wrong_files(self) -> int:
        """As `FileStore`: a reader finds out."""
        return 0


def read_bounded(files: FileStore, job: str, name: str, sha256: str, most: int) -> bytes:
    """The content of a file; OSError as of stores, or for more than `most` bytes."""
    with files.open(job, name, sha256) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"{name} has more than {most:,} bytes")
    return content


def write_file(path: Path, data: bytes, *, once: bool = False) -> ArtifactDescription:
    """As `FileStore.write`, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        temporary.write_bytes(data)
        if once:
            os.link(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    # Not read back: on a shared file system an equal one may just replace it, and reading fails.
    return described(path.name, str(path), len(data), hashlib.sha256(data).hexdigest())


def described(name: str, path: str, size: int, sha256: str) -> ArtifactDescription:
    """The description of a file of `size` bytes."""
    return ArtifactDescription(name=name, path=path, size=size, sha256=sha256, media_type=media_type_of(name))


def digest_of(file: BinaryIO) -> tuple[str, int]:
    """The sha256 of what is left of a file, in hexadecimal, and its size in bytes."""
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def age_of(folder: Path) -> float:
    """Seconds since the newest change in a folder, or of a file; 0 where it is gone."""
    try:
        newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return 0.0
    return time.time() - newest
