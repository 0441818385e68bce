"""Files of jobs in an object store that speaks S3: `<prefix>/<job>/<name>`.

The store is not trusted: what was put is read back before the local file goes, and what is fetched is hashed
before a reader sees it. So a reader gets a verified copy on the local disk, of a cache with an upper size.
"""

from __future__ import annotations

import base64
import errno
import functools
import hashlib
import logging
import os
import re
import secrets
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from assay.service.contract.extras import require
from assay.service.contract.records import ArtifactDescription
from assay.service.files.file_store import (
    Presigned,
    StoreAway,
    StoreKind,
    StoreMethod,
    age_of,
    described,
    digest_of,
)
from assay.service.files.job_files import is_job_file, open_plain_file
from assay.service.files.presigned import S3Place
from assay.service.files.s3_client import MAX_COPY_BYTES, client_of, copy_in_parts

log = logging.getLogger(__name__)
PART = 16 * 1024**2  # Of puts in parts, and of ranges of gets
PARTS_AT_ONCE = 4
FETCHES_AT_ONCE = 8
MAX_PRESIGNED_BYTES = 5 * 1024**3  # S3's limit of a put in one part
PRESIGNED_SECONDS = 600
CALL_SECONDS, RETRIES = 60, 3
PROBE_SECONDS, PROBED_SECONDS = 3, 5.0
REST_SECONDS = 2.0  # After a failure readers are refused without another call
LIED_SECONDS = 86400.0  # A wrong file that nobody reads again is told for so long
KEPT_SECONDS = 86400.0  # An unused copy
STAGING, PROBE = ".staging", ".probe"
TIMED_OUT = re.compile(r"TimedOut|timed out")
AWAY, LIE = "the object store does not answer", "the object store gave other bytes than were stored"


class S3Files:
    """A `FileStore` of an object store; `cache` is this machine's, `cache_bytes` its size in bytes."""

    kind: StoreKind = "s3"

    def __init__(self, place: S3Place, cache: Path, cache_bytes: int) -> None:
        """Makes no call. Raises MissingExtra."""
        require("ASSAY_FILES=s3://...", "s3")
        import obstore

        self._obstore: Any = obstore
        self._place = place
        self._cache, self._cache_bytes = cache, cache_bytes
        self._store = client_of(place, CALL_SECONDS, RETRIES)
        self._fetches = threading.BoundedSemaphore(FETCHES_AT_ONCE)
        self._staged: dict[str, tuple[str, int]] = {}  # Hash and bytes of what was read back, by local name
        self._put: dict[str, tuple[str, str]] = {}  # Hash and ETag of keys that were read back, oldest first
        self._wrong: dict[str, float] = {}  # When keys gave other bytes than were stored
        self._failed_at = self._probed_at = float("-inf")
        self._probed = ""

    def open(self, job: str, name: str, sha256: str) -> BinaryIO:
        """As `FileStore`: a copy, fetched unless it is there."""
        key = _key(job, name)
        whole = len(sha256) == hashlib.sha256().digest_size * 2
        path = self._cache / job / (sha256 if whole else f"{uuid.uuid4().hex}.once")
        try:
            file: BinaryIO = path.open("rb")
        except FileNotFoundError:
            file = self._fetched(key, sha256, path)
        if whole:
            os.utime(file.fileno())
        else:
            path.unlink(missing_ok=True)
        return file

    def fetch(self, job: str, name: str, sha256: str, target: Path) -> None:
        """As `FileStore`, in ranges."""
        key = _key(job, name)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        with self._asking(key):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("xb") as file:
                    found = self._read(key, file)
                if not found.startswith(sha256):
                    raise self._lie(key, found, sha256)
                self._wrong.pop(key, None)
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)

    def stage(self, source: Path) -> None:
        """As `FileStore`: under another key, read back, from which `put` copies within the store."""
        key = f"{STAGING}/{source.name}"
        with open_plain_file(source.parent, source.name) as file:
            facts = digest_of(file)
            self._upload(key, file)
        with self._asking(key):
            self._check(key, facts[0])
        self._staged[source.name] = facts

    def unstage(self, source: Path) -> None:
        """As `FileStore`; `tidy` removes what stays."""
        if source.name in self._staged:
            del self._staged[source.name]
            with suppress(StoreAway, FileNotFoundError), self._asking(STAGING):
                self._obstore.delete(self._store, f"{STAGING}/{source.name}")

    def put(self, source: Path, job: str, name: str, sha256: str, *, keep: bool = False) -> None:
        """As `FileStore`; the local file goes when the store has given the same bytes back.

        OSError: the local file has another content, or is a link.
        """
        key = _key(job, name)
        if (staged := self._staged.get(source.name)) is not None:
            with self._asking(key):  # in a transaction: a large file is not read again
                if staged[1] > MAX_COPY_BYTES:
                    copy_in_parts(self._place, f"{STAGING}/{source.name}", key, staged[1])
                else:
                    self._obstore.copy(self._store, f"{STAGING}/{source.name}", key)
                size = self._obstore.head(self._store, key)["size"]
                if staged != (sha256, size):
                    raise self._lie(key, f"{staged[0]}, {size} bytes", sha256)
            self.unstage(source)
        else:
            try:
                file = open_plain_file(source.parent, source.name)
            except FileNotFoundError:
                with self._asking(key):
                    size = self._obstore.head(self._store, key)["size"]
                if self.holds(job, name, sha256, size):
                    return  # called again, after the database was away
                raise
            with file:
                if digest_of(file)[0] != sha256:  # its job may write it still
                    raise OSError(errno.EINVAL, f"{name} has another content than was stated")
                self._upload(key, file)
            with self._asking(key):
                self._check(key, sha256)
        if not keep:
            source.unlink(missing_ok=True)

    def write(self, job: str, name: str, data: bytes, *, once: bool = False) -> ArtifactDescription:
        """As `FileStore`."""
        key, sha256 = _key(job, name), hashlib.sha256(data).hexdigest()
        with self._asking(key):
            try:
                self._obstore.put(self._store, key, data, mode="create" if once else "overwrite")
            except self._obstore.exceptions.AlreadyExistsError:
                raise FileExistsError(key) from None
            self._check(key, sha256)
        return described(name, key, len(data), sha256)

    def holds(self, job: str, name: str, sha256: str, size: int) -> bool:
        """As `FileStore`: by what was read back, by S3's own checksum, else by reading the file."""
        key = _key(job, name)
        with self._asking(key):
            found = self._obstore.head(self._store, key)
            if found["size"] != size:
                return False
            if found["e_tag"] and self._put.get(key) == (sha256, found["e_tag"]):
                return True
            if (read := self._checksum(key)) is None:
                read = self._read(key)
            if read == sha256:
                self._wrong.pop(key, None)
            return read == sha256

    def sizes(self, job: str) -> dict[str, int]:
        """As `FileStore`."""
        found = ((meta["path"].rpartition("/")[2], meta["size"]) for meta in self._listed(job))
        return dict(sorted(found))

    def remove(self, job: str, name: str) -> None:
        """As `FileStore`."""
        key = _key(job, name)
        with self._asking(key):
            self._obstore.delete(self._store, key)
        self._wrong.pop(key, None)

    def clear(self, job: str) -> bool:
        """As `FileStore`, with this machine's copies."""
        found = [meta["path"] for meta in self._listed(job)]
        with self._asking(job):
            if found:
                self._obstore.delete(self._store, found)
        self._wrong = {key: at for key, at in self._wrong.items() if not key.startswith(f"{job}/")}
        shutil.rmtree(self._cache / job, ignore_errors=True)
        return bool(found)

    def jobs(self) -> Iterator[str]:
        """As `FileStore`."""
        with self._asking("jobs"):
            found = self._obstore.list_with_delimiter(self._store)["common_prefixes"]
        return (path.rstrip("/").rpartition("/")[2] for path in found)

    def age(self, job: str) -> float:
        """As `FileStore`."""
        written = [meta["last_modified"].timestamp() for meta in self._listed(job)]
        return time.time() - max(written) if written else 0.0

    def tidy(self) -> None:
        """As `FileStore`: what killed services staged, and copies that nobody has used for a day."""
        for meta in self._listed(STAGING):
            if time.time() - meta["last_modified"].timestamp() > KEPT_SECONDS:
                with self._asking(meta["path"]):
                    self._obstore.delete(self._store, meta["path"])
        for folder in self._cache.glob("*"):
            if age_of(folder) > KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)

    def presign(self, method: StoreMethod, job: str, name: str, sha256: str, size: int) -> Presigned | None:
        """As `FileStore`; a put is bound to size and checksum, and replaces no file."""
        if method == "PUT" and size > MAX_PRESIGNED_BYTES:
            return None
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        bound = {"content-length": str(size), "if-none-match": "*", "x-amz-checksum-sha256": checksum}
        headers = bound if method == "PUT" else {}
        url = self._place.presigned(method, _key(job, name), headers, PRESIGNED_SECONDS)
        return Presigned(url, headers)

    def fault(self) -> str:
        """As `FileStore`; asked some seconds apart."""
        if time.monotonic() - self._probed_at > PROBED_SECONDS:
            self._probed = self._probe()
            self._probed_at = time.monotonic()
        return self._probed

    def wrong_files(self) -> int:
        """As `FileStore`."""
        oldest = time.monotonic() - LIED_SECONDS
        return sum(at > oldest for at in [*self._wrong.values()])

    def _probe(self) -> str:
        store, key = client_of(self._place, PROBE_SECONDS, 0), f"{PROBE}/{uuid.uuid4().hex}"
        data = secrets.token_bytes(64)
        try:
            self._obstore.put(store, key, data)
            same = bytes(self._obstore.get(store, key).bytes()) == data
            self._obstore.delete(store, key)
        except Exception as error:  # of the client's or the network's
            log.warning("the object store: %s", self._told(error))
            if "NoSuchBucket" in str(error):
                return "no such bucket"
            return "too slow" if TIMED_OUT.search(str(error)) else "away"
        return "" if same else "gives other bytes than were stored"

    def _fetched(self, key: str, sha256: str, path: Path) -> BinaryIO:
        if time.monotonic() - self._failed_at < REST_SECONDS:
            raise StoreAway(AWAY)
        if not self._fetches.acquire(timeout=CALL_SECONDS):
            raise StoreAway("too many files are being fetched from the object store")
        try:
            self._cache.mkdir(0o700, parents=True, exist_ok=True)  # Evaluators may have other users
            job, _, name = key.partition("/")
            if not path.exists():  # else fetched meanwhile
                self.fetch(job, name, sha256, path)
            file = path.open("rb")
        finally:
            self._fetches.release()
        self._evict()
        return file

    def _evict(self) -> None:
        """Removes the copies that were used longest ago, down to the size of the cache."""
        copies = []
        for path in self._cache.glob("*/*"):
            try:
                copies.append((path.stat().st_mtime, path.stat().st_size, path))
            except FileNotFoundError:
                continue
        left = sum(size for _, size, _ in copies)
        for _, size, path in sorted(copies):
            if left <= self._cache_bytes:
                return
            path.unlink(missing_ok=True)
            left -= size

    def _upload(self, key: str, file: BinaryIO) -> None:
        file.seek(0)
        with self._asking(key):
            self._obstore.put(self._store, key, file, chunk_size=PART, max_concurrency=PARTS_AT_ONCE)

    def _check(self, key: str, sha256: str) -> None:
        mark, found = self._obstore.head(self._store, key)["e_tag"], self._read(key)
        if found != sha256:
            raise self._lie(key, found, sha256)
        self._wrong.pop(key, None)
        self._put = {**dict([*self._put.items()][-10_000:]), key: (sha256, mark)}

    def _read(self, key: str, file: BinaryIO | None = None) -> str:
        """The sha256 of an object, read in ranges, and written to a file."""
        size, digest = self._obstore.head(self._store, key)["size"], hashlib.sha256()
        for start in range(0, size, PART):
            data = self._obstore.get_range(self._store, key, start=start, end=min(start + PART, size))
            digest.update(data)
            if file is not None:
                file.write(data)
        return digest.hexdigest()

    def _listed(self, job: str) -> list[Any]:
        with self._asking(job):
            return cast(list[Any], self._obstore.list(self._store, prefix=f"{job}/").collect())

    def _checksum(self, key: str) -> str | None:
        """The sha256 that the store itself has checked; None: it has none, or of parts."""
        import httpx

        headers = {"x-amz-checksum-mode": "ENABLED"}
        url = self._place.presigned("HEAD", key, headers, 60)
        answer = httpx.head(url, headers=headers, timeout=CALL_SECONDS)
        found = answer.headers.get("x-amz-checksum-sha256", "")
        if not answer.is_success or "-" in found:
            return None
        return base64.b64decode(found).hex() or None

    def _lie(self, key: str, found: str, sha256: str) -> StoreAway:
        self._wrong = {**dict([*self._wrong.items()][-1000:]), key: time.monotonic()}
        log.error("the object store gave %s with the sha256 %s, not %s", key, found, sha256)
        return StoreAway(f"{LIE}: {key}")

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turns what clients and disks raise into the errors of stores."""
        try:
            yield
            self._failed_at = float("-inf")
        except (StoreAway, FileExistsError):
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
                raise FileNotFoundError(f"the object store has no {what}") from None
            self._failed_at = time.monotonic()
            log.warning("the object store, %s: %s", what, self._told(error))
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise StoreAway("this machine has no room for a copy" if full else AWAY) from None

    def _told(self, error: Exception) -> str:
        """An error's first line, without the keys."""
        text = f"{type(error).__name__}: {error}".partition("\n")[0][:500]
        for secret in (self._place.secret_access_key, self._place.session_token, self._place.access_key_id):
            text = text.replace(secret, "***") if secret else text
        return text


@functools.cache
def s3_files(place: S3Place, cache: Path, cache_bytes: int, process: int) -> S3Files:
    """The store of a process. Raises MissingExtra."""
    return S3Files(place, cache, cache_bytes)


def _key(job: str, name: str) -> str:
    if not (is_job_file(job) and is_job_file(name)):
        raise OSError(f"{name[:100]!r} is no name of a job's file")
    return f"{job}/{name}"
