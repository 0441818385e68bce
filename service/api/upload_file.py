"""Upload of a file: written and hashed as it arrives, then placed whole or removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.service.contract.errors import TooLarge, Unavailable
from assay.service.files.file_store import FileStore
from assay.service.files.job_files import FILE_MODE
from assay.service.store.artifacts import UPLOAD

STEP = 16 * 1024**2  # Room beyond what has come, for a file of undeclared size.
SIGN_SECONDS = 5.0


class Hold:
    """The room reserved for an upload; it grows with a file of undeclared size (`declared` is 0).

    `reserve` takes bytes, and whether the upload has begun, and returns the file's maximum in bytes.
    """

    def __init__(self, reserve: Callable[[int, bool], int], declared: int) -> None:
        self._reserve = reserve
        self._size = declared
        self.room = reserve(declared, False)
        self._seen = time.monotonic()

    def due(self, size: int) -> bool:
        """Whether `grow` has to be called before so many bytes are written."""
        return size > self._size or time.monotonic() - self._seen > SIGN_SECONDS

    def grow(self, size: int) -> None:
        """Reserves room for so many bytes, and says that the upload goes on."""
        if size > self._size:
            self._size = max(size, min(size + STEP, self.room))
        self._reserve(self._size, True)
        self._seen = time.monotonic()


class Upload:
    """An upload into a folder, which is created when missing.

    `folder` is in the file system of a store that is a folder; `room` is a limit in bytes; without a `name`,
    a name is drawn. `path` and `size` (bytes) are of what was received so far. The constructor and every
    method but `discard` raise Unavailable: the disk or the store refuses the write.
    """

    def __init__(self, folder: Path, room: int | None = None, name: str | None = None) -> None:
        self._room = room
        self.path = folder / f"{UPLOAD}{name or uuid.uuid4().hex}"
        self.size = 0
        self._digest = hashlib.sha256()
        with _disk():
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb")

    @property
    def sha256(self) -> str:
        """Digest of the bytes received so far, in hexadecimal."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        """Appends; TooLarge: over the limit."""
        self.size += len(data)
        if self._room is not None and self.size > self._room:
            raise TooLarge(f"the file has more than the {self._room} bytes that are left for it")
        self._digest.update(data)
        with _disk():
            self._file.write(data)

    def close(self) -> None:
        """Flushes everything to the disk."""
        with _disk():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    @contextmanager
    def staged(self, files: FileStore) -> Iterator[None]:
        """Does the slow part of `place` ahead of the block, which may be a transaction."""
        with _disk():
            files.stage(self.path)
        try:
            yield
        finally:
            files.unstage(self.path)

    def place(self, files: FileStore, job: str, name: str) -> None:
        """Moves the closed file to its job."""
        with _disk():
            files.put(self.path, job, name, self.sha256)

    def discard(self) -> None:
        """Removes the file, unless it was placed."""
        with contextlib.suppress(OSError):  # closing writes what is left, which a full disk refuses again
            self._file.close()
        self.path.unlink(missing_ok=True)


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"the upload could not be stored: {error.strerror}") from error
