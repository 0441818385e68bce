"""Takes published sets out of the store, with the contents that no other set has."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.service.files.data_store import DIGEST_BYTES, DataStore, PublishedSet, published_set

LOCK = ".lock"
CHUNK = DIGEST_BYTES * 2**15


def unpublish(store: DataStore, name: str) -> tuple[PublishedSet, int]:
    """Withdraws a set: nodes that have it keep it, a node that fetches it breaks off.

    Returns it, and how many contents were deleted. Contents of replaced sets go too, and what a killed
    process has left. Raises NotFound; OSError; ValueError: a record cannot be read.
    """
    with writing(store, alone=True):
        one = store.find(name)
        kept = {other.sha256 for path, other in _records(store) if path != store.record(name)}
        store.record(name).unlink()
        return one, _collect(store, kept)


@contextmanager
def writing(store: DataStore, *, alone: bool) -> Iterator[None]:
    """Lets processes publish side by side, and withdraw alone."""
    store.root.mkdir(parents=True, exist_ok=True)
    with (store.root / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def _records(store: DataStore) -> Iterator[tuple[Path, PublishedSet]]:
    for path in sorted((store.root / "sets").glob("*.json")):
        try:
            yield path, published_set(json.loads(path.read_text()))
        except (ValueError, TypeError) as error:  # its contents would be lost
            raise ValueError(
                f"{path} is no record of a published set: remove it, or mend it: {error}"
            ) from error


def _collect(store: DataStore, kept: set[str]) -> int:
    """Deletes trees that no record names, and contents of theirs that no other tree has."""
    gone = [path for path in (store.root / "trees").glob("*.index") if path.stem not in kept]
    free = {digest for path in gone for digest in _digests(path)}
    for sha256 in kept:
        free.difference_update(_digests(store.index(sha256)))
    store.blobs.remove(digest.hex() for digest in free)
    for path in gone:  # last: what is left by a killed process is found again
        path.with_suffix(".tree").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return len(free)


def _digests(index: Path) -> Iterator[bytes]:
    with index.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield from (chunk[start : start + DIGEST_BYTES] for start in range(0, len(chunk), DIGEST_BYTES))
