"""Contents of published files by their hash: the protocol of the places where they lie, and a folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

CHUNK = 2**20


class Blobs(Protocol):
    """Contents by hash, wherever they lie."""

    def open(self, sha256: str) -> BinaryIO:
        """The content. Raises OSError: not there."""
        ...

    def address(self, sha256: str) -> str | None:
        """A URL that gives the content to whoever has it, for a while; None: only `open` gives it."""
        ...

    def size(self, sha256: str) -> int:
        """The bytes of a content. Raises OSError: not there."""
        ...

    def holds(self, sha256: str, size: int) -> bool:
        """Whether a content is there, with so many bytes. Raises OSError: not known."""
        ...

    def add(self, file: Path, size: int, changed: int) -> str:
        """Copies a file in; its hash. Raises OSError; ValueError: it has another size or time of change."""
        ...

    def remove(self, sha256: Iterable[str]) -> None:
        """Deletes contents, if they are there."""
        ...


class BlobFolder:
    """`Blobs` in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, sha256: str) -> Path:
        """Where a content lies."""
        return self._root / sha256[:2] / sha256

    def open(self, sha256: str) -> BinaryIO:
        """As `Blobs`; a link or a pipe is none."""
        return open_file(self.path(sha256))

    def address(self, sha256: str) -> str | None:
        """As `Blobs`: only the service sends it."""
        return None

    def size(self, sha256: str) -> int:
        """As `Blobs`."""
        with self.open(sha256) as file:
            return file.seek(0, 2)

    def holds(self, sha256: str, size: int) -> bool:
        """As `Blobs`."""
        with contextlib.suppress(OSError):
            return self.size(sha256) == size
        return False

    def add(self, file: Path, size: int, changed: int) -> str:
        """As `Blobs`, read once."""
        temporary = self._root / "new" / f".{uuid.uuid4().hex}"
        temporary.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        try:
            with file.open("rb") as source, temporary.open("xb") as target:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    target.write(chunk)
            check_same(file, size, changed)
            place = self.path(digest.hexdigest())
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
        return digest.hexdigest()

    def remove(self, sha256: Iterable[str]) -> None:
        """As `Blobs`."""
        for each in sha256:
            self.path(each).unlink(missing_ok=True)


def open_file(path: Path) -> BinaryIO:
    """Opens a file to be read; OSError for a link or a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is no regular file")
    return os.fdopen(descriptor, "rb")


def check_same(file: Path, size: int, changed: int) -> None:
    """Raises ValueError: a file has another size or time of change, in nanoseconds."""
    facts = file.stat()
    if (facts.st_size, facts.st_mtime_ns) != (size, changed):
        raise ValueError(f"{file} has changed while it was read: publish the set again")
