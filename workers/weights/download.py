"""Downloads one file: resumed where a connection broke, compared with its hash, never waiting for minutes."""

from __future__ import annotations

import errno
import hashlib
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

import httpx

from assay.service.fitted_text import columns
from assay.workers.weights.pulled import CHUNK, file_sha256

# Seconds to reach a host, and between two bytes of an answer.
CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
# Attempts that bring no byte, before the download is given up.
ATTEMPTS = 2
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
LINE_SECONDS = 10.0
RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class PullFailed(Exception):
    """Weights cannot be pulled; the message says why, and what to do."""


class Unreachable(PullFailed):
    """A host does not answer."""


@dataclass(frozen=True)
class Remote:
    """A file on the network."""

    url: str  # Where it is
    name: str  # What it is called in the weights folder
    size: int | None = None  # Bytes; None where unknown
    sha256: str | None = None  # Its hash, or the beginning of it; None where unknown
    blob: str | None = None  # Its hash as an object of git; None where unknown
    # For the request; only its own host gets those with credentials
    headers: Mapping[str, str] = field(default_factory=dict)
    cached: Path | None = None  # Where another program has put it on this machine; None where none has


class ByteReporter(Protocol):
    """Interface: told how many bytes of a file are there."""

    def __call__(self, name: str, done: int, total: int | None, /) -> None:
        """Note the state of a file."""
        ...


def client() -> httpx.Client:
    """A client that follows redirects and gives up soon; the environment states the proxies."""
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    return httpx.Client(timeout=timeout, follow_redirects=True)


def host_of(url: str) -> str:
    """The host of a URL, for messages."""
    return urlsplit(url).netloc.rpartition("@")[2]


def unreachable(url: str, error: httpx.TransportError) -> Unreachable:
    """The failure of a request that got no answer."""
    why = "it does not answer" if isinstance(error, httpx.TimeoutException) else str(error) or "no connection"
    return Unreachable(
        f"{host_of(url)} cannot be reached: {why}. Weights that are pulled on another machine can be copied:"
        " its weights folder to this one's"
    )


def download(remote: Remote, partial: Path, report: ByteReporter) -> None:
    """Fetch a file to a path; what an earlier attempt left there is kept, and the rest asked for."""
    try:
        if remote.cached is not None:
            shutil.copyfile(remote.cached, partial)
        else:
            with client() as http:
                _fetch(http, remote, partial, report)
        _check(remote, partial)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(partial.parent).free
        raise PullFailed(f"the disk of {partial.parent} is full ({in_units(free)} are free)") from error


def _fetch(http: httpx.Client, remote: Remote, partial: Path, report: ByteReporter) -> None:
    fruitless = 0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        if remote.size is not None and before >= remote.size:
            return
        try:
            _request(http, remote, partial, report)
        except httpx.TransportError as error:
            there = partial.stat().st_size if partial.exists() else 0
            fruitless = 0 if there > before else fruitless + 1
            if there == 0 and not isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
                raise unreachable(remote.url, error) from error
            if fruitless >= ATTEMPTS:
                raise Unreachable(
                    f"the connection to {host_of(remote.url)} broke at byte {there:,} of {remote.name}:"
                    " the same command goes on from there"
                ) from error
        else:
            return


def _request(http: httpx.Client, remote: Remote, partial: Path, report: ByteReporter) -> None:
    start = partial.stat().st_size if partial.exists() else 0
    headers = {**remote.headers, "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with http.stream("GET", remote.url, headers=headers) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            if remote.size is None and response.headers.get("Content-Range") == f"bytes */{start}":
                return  # it is whole
            partial.unlink()
            raise httpx.ReadError("the file has another length", request=response.request)
        if response.is_error:
            raise refused(remote.url, response)
        found = RANGE.fullmatch(response.headers.get("Content-Range", ""))
        resumed = response.status_code == httpx.codes.PARTIAL_CONTENT and found is not None
        if resumed and found is not None and int(found[1]) != start:
            raise PullFailed(
                f"{host_of(remote.url)} answers with another part of {remote.name} than asked for"
            )
        start = start if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = remote.size or (start + int(length) if length.isdigit() else None)
        _check_room(partial, 0 if total is None else total - start)
        with partial.open("ab" if resumed else "wb") as file:
            _copy(response, file, remote.name, start, total, report)


def _copy(
    response: httpx.Response, file: BinaryIO, name: str, start: int, total: int | None, report: ByteReporter
) -> None:
    done = start
    report(name, done, total)
    for chunk in response.iter_raw():  # without a size: what waits for a whole chunk is lost when it breaks
        file.write(chunk)
        done += len(chunk)
        report(name, done, total)
    if total is not None and done < total:
        raise httpx.RemoteProtocolError(f"{total - done:,} bytes are missing")


def _check_room(partial: Path, needed: int) -> None:
    free = shutil.disk_usage(partial.parent).free
    if free < needed:
        have, need = in_units(free), in_units(needed)
        raise PullFailed(f"the disk of {partial.parent} has {have} left, {need} are needed")


def _check(remote: Remote, path: Path) -> None:
    digest = file_sha256(path)
    wrong = None
    if remote.size is not None and path.stat().st_size != remote.size:
        wrong = f"{path.stat().st_size:,} bytes, {remote.size:,}"
    elif remote.sha256 is not None and not digest.startswith(remote.sha256):
        wrong = f"the sha256 {digest}, {remote.sha256}"
    elif remote.blob is not None and git_blob(path) != remote.blob:
        wrong = f"the hash {git_blob(path)}, {remote.blob}"
    if wrong is not None:
        path.unlink()
        raise PullFailed(f"{remote.name} of {host_of(remote.url)} has {wrong} were promised: it was deleted")


def git_blob(path: Path) -> str:
    """The hash of a file as an object of git."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def refused(url: str, response: httpx.Response) -> PullFailed:
    """The failure of a request that was answered with an error."""
    return PullFailed(f"{host_of(url)} answers {response.status_code} {response.reason_phrase} to {url}")


class DownloadProgress:
    """A bar in a terminal; in a pipe a line at every tenth, and every ten seconds."""

    def __init__(self) -> None:
        self._bar = sys.stderr.isatty()
        self._name = ""
        self._tenth = -1
        self._begun = self._said = 0.0
        self._first = 0

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Show how many bytes of a file are there."""
        now = time.monotonic()
        if name != self._name:
            self._name, self._tenth, self._begun, self._said, self._first = name, -1, now, 0.0, done
        share = 0.0 if not total else done / total
        tenth, whole = int(10 * share), bool(total) and done == total
        if self._bar and (now - self._said > 0.1 or whole):
            text = self._text(name, done, total, now)[: columns(sys.stderr) - 1]  # a longer one would wrap
            sys.stderr.write(f"\r{text}\x1b[K" + ("\n" if whole else ""))
        elif not self._bar and (tenth > self._tenth or now - self._said > LINE_SECONDS):
            sys.stderr.write(f"{self._text(name, done, total, now)}\n")
        else:
            return
        self._tenth, self._said = tenth, now
        sys.stderr.flush()

    def _text(self, name: str, done: int, total: int | None, now: float) -> str:
        size = in_units(done) if total is None else in_units(total, done)
        share = "" if not total else f"{100 * done // total:3d} %  "
        bar = "" if not total or not self._bar else f"[{'#' * int(20 * done / total):20}] "
        speed = (done - self._first) / max(now - self._begun, 1e-9)
        return f"{name}  {bar}{share}{size}" + (f"  {in_units(int(speed))}/s" if done > self._first else "")


def in_units(size: int, done: int | None = None) -> str:
    """Bytes in the largest unit that they fill, as `1.5 MB`; with `done` of them, as `0.3 of 1.5 MB`."""
    unit = next((name for name in reversed(UNITS) if size >= UNITS[name]), "bytes")
    numbers = [size] if done is None else [done, size]
    said = [f"{one / UNITS[unit]:,.1f}" if unit in UNITS else f"{one}" for one in numbers]
    return f"{' of '.join(said)} {unit}"
