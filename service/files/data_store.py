"""The store of data: published data sets as trees of files; equal files lie there once, by their content.

    ROOT/sets/NAME.json        what is published under a name, `/` as %2F
    ROOT/trees/SHA256.tree     a line for each file, sorted by path: sha256, size, path
    ROOT/trees/SHA256.index    the hashes of these files, 32 bytes each, sorted
    ROOT/blobs/AB/SHA256       the content of a file

The hash of a data set is the hash of its tree, and so of names, sizes and contents. A tree is a stranger's:
`read_tree` yields nothing that leaves a folder.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, unquote

from assay.service.contract.errors import NotFound
from assay.service.contract.problems import nearest
from assay.service.contract.typed_values import faults
from assay.service.contract.weights.pulled import SOURCES, PulledRecord, parse_reference
from assay.service.files.blobs import BlobFolder, Blobs, open_file

MAX_FILES, MAX_BYTES = 5_000_000, 2**46  # of a data set
MAX_PATH, MAX_PART, MAX_NAME = 1024, 255, 200  # in bytes; a name as in the address of its file
MAX_SETS, MAX_RECORD = 10_000, 100_000
NAMED, SUGGESTIONS = 20, 40  # names in an error, and records that are read for them
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
    """A data set by name, the folder that jobs name, or pulled weights; `tenants` None: for every tenant."""

    name: str
    sha256: str
    files: int
    bytes: int
    published_at: str
    tenants: tuple[str, ...] | None = None
    pulled: PulledRecord | None = None  # of weights, published under their reference

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

    @property
    def record(self) -> dict[str, Any]:
        """As it is written; without what earlier versions do not know, where it says nothing."""
        return {name: value for name, value in asdict(self).items() if name != "pulled" or value is not None}

    def open_to(self, tenant: str | None) -> bool:
        """Whether a tenant may fetch it; None is the operator."""
        return tenant is None or self.tenants is None or tenant in self.tenants


class DataStore:
    """What is published in a folder."""

    def __init__(self, root: Path, blobs: Blobs | None = None) -> None:
        self.root = root
        self.blobs = BlobFolder(root / "blobs") if blobs is None else blobs

    def sets(self, tenant: str | None = None, beginning: str = "") -> list[PublishedSet]:
        """The data sets that a tenant may fetch, by name; None: all. What is no record is left out."""
        found = []
        for path in sorted((self.root / "sets").glob(f"{beginning}*.json"))[:MAX_SETS]:
            try:
                one = self._read(path)
            except (OSError, ValueError, TypeError):
                continue
            if one.open_to(tenant) and path == self.record(one.name):
                found.append(one)
        return sorted(found, key=lambda one: one.name)

    def weights(self, tenant: str | None = None) -> dict[str, PulledRecord]:
        """The published weights that a tenant may fetch, by reference."""
        found = (one for source in SOURCES for one in self.sets(tenant, key_of(f"{source}:")))
        return {one.name: one.pulled for one in found if one.pulled is not None}

    def find(self, name: str, tenant: str | None = None) -> PublishedSet:
        """The data set of a name. Raises NotFound, alike for a foreign set and for no set."""
        try:
            one = None if path_fault(name) else self._read(self.record(name))
        except (OSError, ValueError, TypeError):
            one = None
        if one is not None and one.name == name and one.open_to(tenant):
            return one
        raise unpublished(name, self._others(name, tenant))

    def _others(self, name: str, tenant: str | None) -> list[str]:
        """Names for an error: what is like the name, and the first. Few records are read."""
        with contextlib.suppress(OSError), os.scandir(self.root / "sets") as entries:
            files = sorted(one.name for one in islice(entries, MAX_SETS) if one.name.endswith(".json"))
            names = [unquote(one.removesuffix(".json")) for one in files]
            alike = difflib.get_close_matches(name[:MAX_NAME], names, SUGGESTIONS // 2, 0.5)
            found = [one for one in dict.fromkeys([*alike, *names[:SUGGESTIONS]]) if self._opens(one, tenant)]
            return sorted(found)
        return []

    def _opens(self, name: str, tenant: str | None) -> bool:
        try:
            one = self._read(self.record(name))
        except (OSError, ValueError, TypeError):
            return False
        return one.name == name and one.open_to(tenant)

    @property
    def version(self) -> str:
        """Changes when something is published, or published no longer."""
        try:
            return str((self.root / "sets").stat().st_mtime_ns)
        except OSError:
            return ""

    def record(self, name: str) -> Path:
        """The file that says what is published under a name."""
        return self.root / "sets" / f"{key_of(name)}.json"

    def tree(self, sha256: str) -> Path:
        """The file with the tree of a hash."""
        return self.root / "trees" / f"{sha256}.tree"

    def index(self, sha256: str) -> Path:
        """The file with the hashes of the contents of a tree."""
        return self.tree(sha256).with_suffix(".index")

    def open_tree(self, one: PublishedSet) -> BinaryIO:
        """The lines of a data set. Raises NotFound: no longer there."""
        try:
            return open_file(self.tree(one.sha256))
        except OSError:
            raise NotFound(f"the tree of the data set {one.name} is not in the store") from None

    def open_blob(self, one: PublishedSet, sha256: str) -> BinaryIO:
        """The content of a file of a data set. Raises NotFound: of no file of the set, or not there."""
        try:
            return self.blobs.open(self.checked(one, sha256))
        except OSError:
            raise NotFound(f"the content {sha256} of the data set {one.name} is not in the store") from None

    def size(self, one: PublishedSet, sha256: str) -> int:
        """The bytes of a content, as `open_blob`."""
        try:
            return self.blobs.size(self.checked(one, sha256))
        except OSError:
            raise NotFound(f"the content {sha256} of the data set {one.name} is not in the store") from None

    def checked(self, one: PublishedSet, sha256: str) -> str:
        """The hash, where a file of the data set has it: a search in the index. Raises NotFound."""
        if SHA256.fullmatch(sha256):
            try:
                with open_file(self.index(one.sha256)) as index:
                    if _holds(index, bytes.fromhex(sha256)):
                        return sha256
            except OSError:
                pass
        raise NotFound(f"no file of the data set {one.name} has the content {sha256[:64]!r}")

    @staticmethod
    def _read(path: Path) -> PublishedSet:
        with open_file(path) as file:
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
    if (pulled := values.get("pulled")) is not None:
        parse_reference(str(values["name"]))
        if wrong := [*islice(faults(pulled, PulledRecord, "pulled"), 1)]:
            raise ValueError(f"no published weights: {wrong[0][:200]}")
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
    more = f"; there is {near}" if near else f"; there are: {', '.join(others[:NAMED])}" if others else ""
    return NotFound(f"no data set {name[:MAX_NAME]!r} is published{more}")


def _holds(index: BinaryIO, digest: bytes) -> bool:
    low, high = 0, os.fstat(index.fileno()).st_size // DIGEST_BYTES
    while low < high:
        middle = (low + high) // 2
        found = os.pread(index.fileno(), DIGEST_BYTES, middle * DIGEST_BYTES)
        if found == digest:
            return True
        low, high = (middle + 1, high) if found < digest else (low, middle)
    return False
