"""Archives that could do harm, or are no program, are refused before anything in them is used."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from assay.service.files import program_file
from assay.service.files.program_file import BadProgram, is_archive, open_program
from tests.support.archives import GRAPH, archive


def refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadProgram, match=reason):
        open_program(path)


def with_names(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name in names:
            file.writestr(zipfile.ZipInfo(name), b"x")
    return content.getvalue()


def test_an_archive_as_torch_writes_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(archive({"data/weights/weight_0": b"1234", "extra/note": b"hello"}))
    found = open_program(path)
    assert (found.root, found.graph, found.model) == ("net", GRAPH, "model")
    assert found.sizes["data/weights/weight_0"] == 4
    with found.reading() as read:
        assert read("data/weights/weight_0", 4) == b"1234"
        with pytest.raises(BadProgram, match="has 4 bytes, allowed: at most 3"):
            read("data/weights/weight_0", 3)
        with pytest.raises(BadProgram, match="no entry 'data/weights/weight_1'"):
            read("data/weights/weight_1", 3)


def test_only_the_first_bytes_decide_what_a_file_is(tmp_path: Path) -> None:
    for content, wanted in (
        (archive(), True),
        (b"PK", False),
        (b"", False),
        (b"\x08\0\0\0\0\0\0\0{}", False),
    ):
        (tmp_path / "file").write_bytes(content)
        assert is_archive(tmp_path / "file") is wanted


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"data.pkl": b"cos\nsystem\n"}, "written by torch.save, and unpickling can run code"),
        ({"data.pkl": b"", "code/a.py": b""}, "written by TorchScript"),
        ({"serialized_exported_program.json": b"{}"}, "older torch, with pickles inside; save it again with"),
        ({"data/weights/model.pt": b""}, "older torch"),
        ({"data/aotinductor/model/a.so": b"\x7fELF"}, "code that was compiled for one machine"),
        ({"data/constants/custom_obj_0": b""}, "objects of a class of its own"),
        ({"data/constants/opaque_obj_0": b""}, "pickled objects among its constants"),
        ({"archive_format": b"pt3"}, "its archive_format is 'pt3', allowed: 'pt2'"),
        ({"archive_version": b"1"}, "its archive_version is '1', allowed: '0'; save it again"),
        ({"byteorder": b"big"}, "its byteorder is 'big'"),
        ({"models/second.json": b"{}"}, "it has 2 programs, allowed: one"),
    ],
)
def test_what_is_never_taken_is_refused_by_name(
    tmp_path: Path, entries: dict[str, bytes], reason: str
) -> None:
    refused(tmp_path, archive(entries), reason)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["net/../../etc/passwd"], "names are relative and plain"),
        (["/etc/passwd"], "names are relative and plain"),
        (["net/a\\b"], "names are relative and plain"),
        (["net//a"], "names are relative and plain"),
        (["net/folder/"], "names are relative and plain"),
        (["net"], "names are relative and plain"),
        (["net/" + "a" * 2000], "names are relative and plain"),
        (["net/a", "other/b"], "outside the folder 'net'"),
        (["net/a"], "no entry 'archive_format'"),
        ([], "0 entries"),
    ],
)
def test_names_are_no_paths(tmp_path: Path, names: list[str], reason: str) -> None:
    refused(tmp_path, with_names(*names), reason)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_means_one_entry(tmp_path: Path) -> None:
    refused(tmp_path, with_names("net/a", "net/a"), "two entries with the name")


def test_bombs_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(tmp_path, archive({"data/weights/weight_0": bytes(10**6)}, compressed=True), "is compressed")
    monkeypatch.setattr(program_file, "MAX_ENTRIES", 4)
    refused(tmp_path, archive(), "more than 4 entries")
    monkeypatch.setattr(program_file, "MAX_DIRECTORY_BYTES", 64)
    refused(tmp_path, archive(), "its directory takes more than 64 bytes")


def test_entries_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    content = bytearray(archive({f"data/weights/weight_{number}": bytes(1000) for number in range(3)}))
    places = [at for at in range(len(content)) if content[at : at + 4] == b"PK\1\2"]
    for at in places:  # every directory entry claims ten times the file
        content[at + 20 : at + 28] = struct.pack("<II", 40_000, 40_000)
    refused(tmp_path, bytes(content), "they overlap|damaged")


def test_sizes_that_lie_are_noticed(tmp_path: Path) -> None:
    content = bytearray(archive({"data/weights/weight_0": b"1234"}))
    at = content.rindex(b"PK\1\2")
    content[at + 24 : at + 28] = struct.pack("<I", 400)
    refused(tmp_path, bytes(content), "has 4 bytes and claims 400")


@pytest.mark.parametrize("kept", [0.2, 0.6, 0.95])
def test_a_cut_file_is_refused(tmp_path: Path, kept: float) -> None:
    content = archive({"data/weights/weight_0": bytes(5000)})
    refused(tmp_path, content[: int(len(content) * kept)], "damaged or cut off")


def test_an_archive_inside_a_file_that_was_cut_off_is_not_taken_for_it(tmp_path: Path) -> None:
    content = archive({"data/sample_inputs/model.pt": archive({"data.pkl": b""}, root="inner")})
    inner = content.index(b"PK\5\6") + 22
    refused(tmp_path, content[:inner], "does not begin where the file begins")


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    content = archive({"data/weights/weight_0": b"weights-here"})
    path = tmp_path / "file"
    path.write_bytes(content.replace(b"weights-here", b"weights-gone"))
    with open_program(path).reading() as read, pytest.raises(BadProgram, match="damaged"):
        read("data/weights/weight_0", 100)


def entry(name: str, *, mode: int = 0, comment: bytes = b"") -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    found.create_system, found.external_attr, found.comment = 3, mode << 16, comment
    return found


def with_entry(info: zipfile.ZipInfo, data: bytes = b"x", *, comment: bytes = b"") -> bytes:
    content = io.BytesIO(archive())
    with zipfile.ZipFile(content, "a") as file:
        file.writestr(info, data)
        file.comment = comment
    return content.getvalue()


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (stat.S_IFLNK | 0o777, "its entry 'net/secret' is a symbolic link, allowed: plain files"),
        (stat.S_IFIFO | 0o600, "its entry 'net/secret' is of the file type 10000, allowed: plain files"),
        (stat.S_IFDIR | 0o755, "its entry 'net/secret' is of the file type 40000"),
    ],
)
def test_links_and_devices_are_refused_by_name(tmp_path: Path, mode: int, reason: str) -> None:
    refused(tmp_path, with_entry(entry("net/secret", mode=mode), b"/etc/passwd"), reason)
    path = tmp_path / "right"
    path.write_bytes(with_entry(entry("net/secret", mode=stat.S_IFREG | 0o644)))
    assert open_program(path).sizes["secret"] == 1


def test_long_comments_are_refused(tmp_path: Path) -> None:
    plain = entry("net/a")
    refused(tmp_path, with_entry(plain, comment=b"c" * 60_000), "its archive has a comment of 60000 bytes")
    long = entry("net/a", comment=b"c" * 257)
    refused(tmp_path, with_entry(long), "an entry has a comment of 257 bytes, allowed: at most 256")


def test_an_entry_inside_another_is_refused(tmp_path: Path) -> None:
    """The sum of the sizes is that of a right archive: only the places tell."""
    content = bytearray(archive({"data/a": bytes(5000), "data/b": b"", "data/c": b"1"}))
    records = [at for at in range(len(content)) if content[at : at + 4] == b"PK\1\2"]
    places = {bytes(content[at + 46 : at + 46 + 10]): at for at in records}
    outer, inner = places[b"net/data/a"], places[b"net/data/b"]
    (begin,) = struct.unpack_from("<I", content, outer + 42)
    struct.pack_into("<I", content, inner + 42, begin + 100)
    refused(tmp_path, bytes(content), "its entry 'net/data/a' takes .* bytes from .*: they overlap")


def test_the_directory_is_no_part_of_an_entry(tmp_path: Path) -> None:
    content = bytearray(archive({"data/a": b"1234"}))
    last = content.rindex(b"PK\1\2")
    struct.pack_into("<II", content, last + 20, 60, 60)
    refused(tmp_path, bytes(content), "its entry 'net/data/a' takes .* they overlap")


def test_encrypted_entries_are_refused(tmp_path: Path) -> None:
    content = bytearray(archive())
    at = content.index(b"PK\1\2")
    content[at + 8] |= 1
    refused(tmp_path, bytes(content), "compressed or encrypted")


def test_long_extra_fields_are_refused_before_zipfile_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_extra(length: int) -> bytes:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as file:
            entry = zipfile.ZipInfo("net/a")
            entry.extra = struct.pack("<HH", 0x9999, 0) * (length // 4)
            file.writestr(entry, b"x")
        return content.getvalue()

    refused(tmp_path, with_extra(256), "no entry 'archive_format'")

    def never(self: zipfile.ZipInfo) -> None:
        raise AssertionError("zipfile reads them")

    monkeypatch.setattr(zipfile.ZipInfo, "_decodeExtra", never)
    refused(tmp_path, with_extra(260), "an entry has 260 bytes of extra fields, allowed: at most 256")
    refused(tmp_path, with_extra(65_532), "65532 bytes")
