"""The store of data: published data sets as trees of files; equal files lie there once, by their content.

    ROOT/sets/NAME.json        what is published under a name, `/` as %2F
    ROOT/trees/SHA256.tree     a line for each file, sorted by path: sha256, size, path
    ROOT/trees/SHA256.index    the hashes of these files, 32 bytes each, sorted
    ROOT/blobs/AB/SHA256       the content of a file

The hash of a data set is the hash of its tree, and so of names, sizes and contents. A tree is a stranger's:
`read_tree` yields nothing that leaves a folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol
from urllib.parse import quote

from assay.service.contract.errors import NotFound
from assay.service.contract.problems import nearest

MAX_FILES, MAX_BYTES = 5_000_000, 2**46  # of a data set
MAX_PATH, MAX_PART, MAX_NAME = 1024, 255, 200  # in bytes; a name as in the address of its file
MAX_SETS, MAX_RECORD = 10_000, 100_000
LINE = re.compile(rb"([0-9a-f]{64}) (0|[1-9]\d{0,14}) ([^\n]+)\n")
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
MAX_LINE = 64 + 15 + 3 + MAX_PATH
DIGEST_BYTES = 32
# Categories of characters that show other names than they are: controls, direction marks, line ends, halves.
UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


class TreeFile(NamedTuple):
    """A file of a data set: path below its folder, bytes, hash."""

    path: str
    size: int
    sha256: str

    @property
    def line(self) -> bytes:
        """Its line in a tree."""
        return f"{self.sha256} {self.size} {self.path}\n".encode()


@dataclass(frozen=True)
class PublishedSet:
    """A data set by name, the folder that jobs name; `tenants` may fetch it, None: every tenant."""

    name: str
    sha256: str
    files: int
    bytes: int
    published_at: str
    tenants: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError: not what a store publishes."""
        if (problem := path_fault(self.name)) is not None or len(key_of(self.name)) > MAX_NAME:
            raise ValueError(f"the name {self.name[:100]!r} {problem or 'is too long'}")
        if not SHA256.fullmatch(self.sha256):
            raise ValueError(
                f"{self.name} has the hash {self.sha256[:100]!r}; allowed: 64 hexadecimal digits"
            )
        if not (0 < self.files <= MAX_FILES and 0 <= self.bytes <= MAX_BYTES):
            allowed = f"1 to {MAX_FILES:,} files of at most {MAX_BYTES:,} bytes together"
            raise ValueError(
                f"{self.name} has {self.files:,} files of {self.bytes:,} bytes; allowed: {allowed}"
            )

    def open_to(self, tenant: str | None) -> bool:
        """Whether a tenant may fetch it; None is the operator."""
        return tenant is None or self.tenants is None or tenant in self.tenants


class Blobs(Protocol):
    """Contents by hash, wherever they lie."""

    def open(self, sha256: str) -> BinaryIO:
        """The content. Raises OSError: not there."""
        ...

    def address(self, sha256: str) -> str | None:
        """A URL that gives the content to whoever has it, for a while; None: only `open` gives it."""
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
        return _open(self.path(sha256))

    def address(self, sha256: str) -> str | None:
        """As `Blobs`: only the service sends it."""
        return None


class DataStore:
    """What is published in a folder."""

    def __init__(self, root: Path, blobs: Blobs | None = None) -> None:
        self.root = root
        self.blobs = BlobFolder(root / "blobs") if blobs is None else blobs

    def sets(self, tenant: str | None = None) -> list[PublishedSet]:
        """The data sets that a tenant may fetch, by name; None: all. What is no record is left out."""
        found = []
        for path in sorted((self.root / "sets").glob("*.json"))[:MAX_SETS]:
            try:
                one = self._read(path)
            except (OSError, ValueError, TypeError):
                continue
            if one.open_to(tenant) and path == self.record(one.name):
                found.append(one)
        return sorted(found, key=lambda one: one.name)

    def find(self, name: str, tenant: str | None = None) -> PublishedSet:
        """The data set of a name. Raises NotFound, alike for a foreign set and for no set."""
        try:
            if path_fault(name) is None and (one := self._read(self.record(name))).open_to(tenant):
                return one
        except (OSError, ValueError, TypeError):
            pass
        raise unpublished(name, [one.name for one in self.sets(tenant)])

    def record(self, name: str) -> Path:
        """The file that says what is published under a name."""
        return self.root / "sets" / f"{key_of(name)}.json"

    def tree(self, sha256: str) -> Path:
        """The file with the tree of a hash; its index has the suffix `.index`."""
        return self.root / "trees" / f"{sha256}.tree"

    def open_tree(self, one: PublishedSet) -> BinaryIO:
        """The lines of a data set. Raises NotFound: no longer there."""
        try:
            return _open(self.tree(one.sha256))
        except OSError:
            raise NotFound(f"the tree of the data set {one.name} is not in the store") from None

    def open_blob(self, one: PublishedSet, sha256: str) -> BinaryIO:
        """The content of a file of a data set. Raises NotFound: of no file of the set, or not there."""
        try:
            return self.blobs.open(self.checked(one, sha256))
        except OSError:
            raise NotFound(f"the content {sha256} of the data set {one.name} is not in the store") from None

    def checked(self, one: PublishedSet, sha256: str) -> str:
        """The hash, where a file of the data set has it: a search in the index. Raises NotFound."""
        if SHA256.fullmatch(sha256):
            try:
                with _open(self.tree(one.sha256).with_suffix(".index")) as index:
                    if _holds(index, bytes.fromhex(sha256)):
                        return sha256
            except OSError:
                pass
        raise NotFound(f"no file of the data set {one.name} has the content {sha256[:64]!r}")

    @staticmethod
    def _read(path: Path) -> PublishedSet:
        with _open(path) as file:
            return published_set(json.loads(file.read(MAX_RECORD)))


def published_set(values: dict[str, object]) -> PublishedSet:
    """A published set from JSON. Raises ValueError, TypeError."""
    tenants = values.get("tenants")
    if tenants is not None:
        if not isinstance(tenants, list) or not all(isinstance(one, str) for one in tenants):
            raise ValueError("tenants: a list of names is allowed")
        values = {**values, "tenants": tuple(tenants)}
    kinds = {"name": str, "sha256": str, "files": int, "bytes": int, "published_at": str}
    if wrong := [name for name, kind in kinds.items() if type(values.get(name)) is not kind]:
        raise ValueError(f"no published data set: {', '.join(wrong)} missing, or of another type")
    return PublishedSet(**values)  # type: ignore[arg-type]


def read_tree(lines: Iterable[bytes]) -> Iterator[TreeFile]:
    """The files of a tree. Raises ValueError, with the line: what is no path of a file below a folder."""
    before, others, number = b"", set[str](), 0
    for number, line in enumerate(lines, 1):
        found = LINE.fullmatch(line) if len(line) <= MAX_LINE else None
        if found is None or number > MAX_FILES:
            allowed = f"`SHA256 SIZE PATH`, on at most {MAX_FILES:,} lines"
            raise ValueError(f"line {number} of the tree is {line[:100]!r}; allowed: {allowed}")
        try:
            path = found[3].decode()
        except UnicodeDecodeError:
            raise ValueError(f"line {number} of the tree: the path {found[3][:100]!r} is no UTF-8") from None
        if (problem := path_fault(path)) is not None:
            raise ValueError(f"line {number} of the tree: the path {path[:100]!r} {problem}")
        if found[3] <= before:
            raise ValueError(
                f"line {number} of the tree: the path {path[:100]!r} is not after the one before"
            )
        if not path.isascii():  # some file systems take names for equal
            same = unicodedata.normalize("NFC", path)
            if same in others:
                raise ValueError(
                    f"line {number} of the tree: the path {path[:100]!r} is there in another form"
                )
            others.add(same)
        before = found[3]
        yield TreeFile(path, int(found[2]), found[1].decode())


def path_fault(path: str) -> str | None:
    """What is wrong with a path below a folder; None where nothing is."""
    if "\\" in path or path[1:2] == ":":
        return "has a backslash or a drive"
    if any(unicodedata.category(one) in UNSEEN for one in path):
        return "has characters that cannot be seen"
    if len(path.encode()) > MAX_PATH:
        return f"has more than {MAX_PATH} bytes"
    for part in path.split("/"):
        if (
            part in ("", ".", "..")
            or part[0] in ".~"
            or part != part.strip()
            or len(part.encode()) > MAX_PART
        ):
            return 'has a part that is empty, "..", hidden, too long, or has white space at an end'
    return None


def key_of(name: str) -> str:
    """The name of a data set as the name of a file."""
    return quote(name, safe="")


def unpublished(name: str, others: list[str]) -> NotFound:
    """The error for a name that the store does not have."""
    near = nearest(name, others)
    more = f"; there is {near}" if near else f"; there are: {', '.join(others[:20])}" if others else ""
    return NotFound(f"no data set {name[:MAX_NAME]!r} is published{more}")


def _open(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is no regular file")
    return os.fdopen(descriptor, "rb")


def _holds(index: BinaryIO, digest: bytes) -> bool:
    low, high = 0, os.fstat(index.fileno()).st_size // DIGEST_BYTES
    while low < high:
        middle = (low + high) // 2
        found = os.pread(index.fileno(), DIGEST_BYTES, middle * DIGEST_BYTES)
        if found == digest:
            return True
        low, high = (middle + 1, high) if found < digest else (low, middle)
    return False
