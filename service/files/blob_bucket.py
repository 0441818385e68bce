"""Contents of published files in an object store that speaks S3: `<prefix>/blobs/AB/SHA256`."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from assay.service.contract.extras import require
from assay.service.files.blobs import check_same
from assay.service.files.file_store import StoreAway, digest_of
from assay.service.files.presigned import S3Place
from assay.service.files.s3_client import client_of

CALL_SECONDS, RETRIES = 60, 3
ADDRESS_SECONDS = 600  # In which a node begins to fetch
PART = 16 * 1024**2
IN_MEMORY = 2**20
TOGETHER = 1000  # S3's limit of a deletion


class BlobBucket:
    """`Blobs` in a bucket; whoever fetches a content compares it with its hash. OSError: as of stores."""

    def __init__(self, place: S3Place) -> None:
        """Makes no call. Raises MissingExtra."""
        require("ASSAY_DATA_BLOBS=s3://...", "s3")
        import obstore

        self._obstore: Any = obstore
        self._place, self._store = place, client_of(place, CALL_SECONDS, RETRIES)

    def open(self, sha256: str) -> BinaryIO:
        """As `Blobs`: a copy."""
        file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # the caller closes it
        try:
            with _asking(sha256):
                for chunk in self._obstore.get(self._store, _key(sha256)).stream(IN_MEMORY):
                    file.write(chunk)
        except OSError:
            file.close()
            raise
        file.seek(0)
        return file  # type: ignore[return-value]

    def address(self, sha256: str) -> str | None:
        """As `Blobs`."""
        return self._place.presigned("GET", _key(sha256), {}, ADDRESS_SECONDS)

    def size(self, sha256: str) -> int:
        """As `Blobs`."""
        with _asking(sha256):
            return int(self._obstore.head(self._store, _key(sha256))["size"])

    def add(self, file: Path, size: int, changed: int) -> str:
        """As `Blobs`; the store compares what comes with checksums."""
        with file.open("rb") as content:
            sha256, _ = digest_of(content)
            check_same(file, size, changed)
            if self.holds(sha256, size):
                return sha256
            content.seek(0)
            with _asking(sha256):
                self._obstore.put(self._store, _key(sha256), content, chunk_size=PART)
        try:
            check_same(file, size, changed)
        except ValueError:
            self.remove([sha256])
            raise
        return sha256

    def holds(self, sha256: str, size: int) -> bool:
        """As `Blobs`."""
        try:
            return self.size(sha256) == size
        except FileNotFoundError:
            return False

    def remove(self, sha256: Iterable[str]) -> None:
        """As `Blobs`."""
        keys = [*map(_key, sha256)]
        with _asking("contents"):
            for start in range(0, len(keys), TOGETHER):
                self._obstore.delete(self._store, keys[start : start + TOGETHER])


@functools.cache
def blob_bucket(place: S3Place, process: int) -> BlobBucket:
    """The bucket of a process. Raises MissingExtra."""
    return BlobBucket(place)


def _key(sha256: str) -> str:
    return f"blobs/{sha256[:2]}/{sha256}"


@contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # of the client's, without the keys
        raise StoreAway(f"the store of contents does not answer: {what}, {type(error).__name__}") from None
