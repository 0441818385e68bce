"""Reader of exported programs (`.pt2`) in pure Python, for service and workers; refuses harmful archives.

`torch.export.save` of torch 2.10 or newer writes a zip archive, every entry as it is (not compressed), below
one folder: `archive_format` ("pt2"), `archive_version` ("0"), `byteorder`, `models/NAME.json` (the graph),
below `data/` tables of the weights and of the constants, and their bytes. Entries that may hold pickles
(`data/sample_inputs/`, tensor subclasses) are never read; archives with compiled code or objects are refused.
Nothing is ever unpacked to disk, so names of entries never become paths.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"PK\x03\x04"
MAX_ENTRIES = 50_000  # Large models have some thousand tensors, an entry takes a hundred bytes.
MAX_DIRECTORY_BYTES = 8 * 2**20
MAX_NAME = 1000
MAX_EXTRA_BYTES = 256  # `zipfile` takes quadratic time for more; torch writes at most 28 bytes.
MAX_COMMENT_BYTES = 256
LOCAL_BYTES = 30
CHUNK_BYTES = 2**20
# An entry of the directory: a mark, then a fixed part with the lengths of name, extra fields and comment.
RECORD, RECORD_BYTES = b"PK\x01\x02", 46
LENGTHS, LENGTHS_AT = struct.Struct("<3H"), 28
MARKS = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
HOW = "save it again with torch.export.save of torch 2.10 or newer"
FOREIGN = {  # Other allowed contents of an archive, by prefixes of entry names.
    "data/aotinductor/": "it has code that was compiled for one machine",
    "data/constants/custom_obj": "it has objects of a class of its own among its constants",
    "data/constants/opaque_obj": "it has pickled objects among its constants",
}
LEGACY = ("serialized_exported_program.json", "data/weights/model.pt")


class BadProgram(ValueError):
    """A file is not an acceptable exported program; the message says why."""


@dataclass(frozen=True)
class ProgramFile:
    """An archive with a checked directory."""

    path: Path  # of the file
    root: str  # the folder of all entries
    sizes: Mapping[str, int]  # bytes of each entry by its name below the root
    graph: str  # the name of the entry with the graph

    @property
    def model(self) -> str:
        """The name of the program inside the archive, "model" if torch.export.save wrote it."""
        return self.graph.removeprefix("models/").removesuffix(".json")

    @contextmanager
    def reading(self) -> Iterator[Callable[[str, int], bytes]]:
        """A function (name, max_bytes) to an entry's bytes; BadProgram if missing, too long or damaged."""
        with _opened(self.path) as archive:
            yield lambda name, max_bytes: _read(archive, self.root, name, self.sizes, max_bytes)


def is_archive(path: Path) -> bool:
    """Whether a file begins like a zip archive, unlike all other accepted formats."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def open_program(path: Path) -> ProgramFile:
    """Opens an exported program's archive, reads directory and markers; BadProgram if none, or refused."""
    with _opened(path) as archive:
        if len(archive.comment) > MAX_COMMENT_BYTES:
            raise BadProgram(
                f"its archive has a comment of {len(archive.comment)} bytes, allowed: at most"
                f" {MAX_COMMENT_BYTES}"
            )
        root, sizes = _entries(archive.infolist(), path.stat().st_size)
        _refuse_overlaps(archive.infolist(), archive.start_dir)
        _refuse_others(sizes)
        for name, wanted in MARKS.items():
            found = _read(archive, root, name, sizes, 64).strip()
            if found != wanted:
                shown = found[:20].decode("ascii", "replace")
                raise BadProgram(f"its {name} is {shown!r}, allowed: {wanted.decode()!r}; {HOW}")
    graphs = [name for name in sizes if name.startswith("models/") and name.endswith(".json")]
    if len(graphs) != 1:
        raise BadProgram(f"it has {len(graphs)} programs, allowed: one")
    return ProgramFile(path, root, sizes, graphs[0])


class _Bounded(io.BufferedReader):
    """Limits single reads to the size of a valid directory: `zipfile` reads it whole, at any length."""

    in_directory = True

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0 or size > MAX_DIRECTORY_BYTES:
            content = super().read(MAX_DIRECTORY_BYTES + 1)
            if len(content) > MAX_DIRECTORY_BYTES:
                raise zipfile.BadZipFile(f"its directory takes more than {MAX_DIRECTORY_BYTES} bytes")
            return content
        content = super().read(size)
        if self.in_directory:
            _check_directory(content)
        return content


def _check_directory(content: bytes) -> None:
    """Refuses a directory with many entries or long fields before `zipfile` makes objects of them."""
    at = entries = 0
    while content.startswith(RECORD, at) and at + RECORD_BYTES <= len(content):
        name, extra, comment = LENGTHS.unpack_from(content, at + LENGTHS_AT)
        if extra > MAX_EXTRA_BYTES:
            raise zipfile.BadZipFile(
                f"an entry has {extra} bytes of extra fields, allowed: at most {MAX_EXTRA_BYTES}"
            )
        if comment > MAX_COMMENT_BYTES:
            raise zipfile.BadZipFile(
                f"an entry has a comment of {comment} bytes, allowed: at most {MAX_COMMENT_BYTES}"
            )
        entries += 1
        if entries > MAX_ENTRIES:
            raise zipfile.BadZipFile(f"it has more than {MAX_ENTRIES} entries")
        at += RECORD_BYTES + name + extra + comment


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with _Bounded(path.open("rb", buffering=0)) as file:
        with _damage():
            archive = zipfile.ZipFile(file)
        file.in_directory = False
        with archive:
            yield archive


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, ValueError, EOFError, OverflowError, RuntimeError, OSError) as error:
        raise BadProgram(f"its archive is damaged or cut off: {str(error)[:200]}") from error


def _entries(found: list[zipfile.ZipInfo], size: int) -> tuple[str, dict[str, int]]:
    if not 0 < len(found) <= MAX_ENTRIES:
        raise BadProgram(f"its archive has {len(found)} entries, allowed: 1 to {MAX_ENTRIES}")
    if min(entry.header_offset for entry in found) != 0:  # A truncated file may end with an inner archive's.
        raise BadProgram("its archive is damaged or cut off: it does not begin where the file begins")
    root = found[0].filename.partition("/")[0]
    sizes: dict[str, int] = {}
    for entry in found:
        folder, _, name = entry.filename.partition("/")
        shown = repr(entry.filename[:100])
        parts = entry.filename.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\\" in name or len(name) > MAX_NAME or not name:
            raise BadProgram(f"its archive has an entry with the name {shown}: names are relative and plain")
        if folder != root:
            raise BadProgram(f"its entry {shown} is outside the folder {root[:100]!r}")
        if name in sizes:
            raise BadProgram(f"its archive has two entries with the name {shown}")
        _check_kind(entry, shown)
        if entry.flag_bits & 1 or entry.compress_type != zipfile.ZIP_STORED:
            raise BadProgram(f"its entry {shown} is compressed or encrypted; torch.export.save does neither")
        if entry.compress_size != entry.file_size:
            raise BadProgram(
                f"its entry {shown} has {entry.compress_size} bytes and claims {entry.file_size}"
            )
        sizes[name] = entry.file_size
    if sum(sizes.values()) > size:
        raise BadProgram(
            f"its entries would have {sum(sizes.values())} bytes, the file has {size}: they overlap"
        )
    return root, sizes


def _check_kind(entry: zipfile.ZipInfo, shown: str) -> None:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        what = "a symbolic link" if kind == stat.S_IFLNK else f"of the file type {kind:o}"
        raise BadProgram(f"its entry {shown} is {what}, allowed: plain files")


def _refuse_overlaps(found: list[zipfile.ZipInfo], directory: int) -> None:
    """Refuses entries that share bytes with each other, or with the directory that begins there."""
    entries = sorted(found, key=lambda entry: entry.header_offset)
    ends = [*(entry.header_offset for entry in entries[1:]), directory]
    for entry, end in zip(entries, ends, strict=True):
        # As in the directory: the entry's own header has the name again, and perhaps more extra fields.
        taken = LOCAL_BYTES + len(entry.orig_filename.encode()) + entry.compress_size
        if entry.header_offset + taken > end:
            raise BadProgram(
                f"its entry {entry.filename[:100]!r} takes {taken} bytes from {entry.header_offset}, into"
                f" what begins at {end}: they overlap"
            )


def _refuse_others(sizes: Mapping[str, int]) -> None:
    """Refuses other archives written by torch, and programs with more than a graph and tensors."""
    if "data.pkl" in sizes:
        kind = "TorchScript" if any(name.startswith("code/") for name in sizes) else "torch.save"
        raise BadProgram(
            f"it was written by {kind}, and unpickling can run code; upload a program that torch.export.save"
            " has written, or weights as safetensors (`assay import-pickle` converts them)"
        )
    if any(name in sizes for name in LEGACY):
        raise BadProgram(f"it was written by an older torch, with pickles inside; {HOW}")
    for prefix, reason in FOREIGN.items():
        if any(name.startswith(prefix) for name in sizes):
            raise BadProgram(f"{reason}; {HOW}")


def _read(archive: zipfile.ZipFile, root: str, name: str, sizes: Mapping[str, int], max_bytes: int) -> bytes:
    if name not in sizes:
        raise BadProgram(f"its archive has no entry {name[:100]!r}; {HOW}")
    if sizes[name] > max_bytes:
        raise BadProgram(f"its entry {name[:100]!r} has {sizes[name]} bytes, allowed: at most {max_bytes}")
    with _damage(), archive.open(f"{root}/{name}") as entry:
        content = b"".join(iter(lambda: entry.read(CHUNK_BYTES), b""))
    if len(content) != sizes[name]:
        raise BadProgram(f"its entry {name[:100]!r} is cut off")
    return content
