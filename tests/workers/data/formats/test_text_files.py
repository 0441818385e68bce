"""Text files: UTF-8 with any line ends; anything else is refused by file, line and remedy."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.text_files import content_lines, read_lines, read_text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "texts.csv"


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_text_is_utf_8_with_or_without_a_byte_order_mark(path: Path, mark: bytes) -> None:
    path.write_bytes(mark + "naïve\r\ncafé\n".encode())
    assert read_text(path) == "naïve\r\ncafé\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_any_system_writes_them(path: Path, end: str) -> None:
    path.write_bytes(f"a{end}{end}b{end}".encode())
    assert read_lines(path) == ["a", "", "b", ""]
    assert content_lines(path) == ["a", "", "b"]


def test_no_other_character_ends_a_line(path: Path) -> None:
    """Python's splitlines would split here, and a CSV reader would not."""
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_lines(path) == [text]


@pytest.mark.parametrize(
    ("content", "lines"),
    [(b"", []), (b"\n", [""]), (b"a", ["a"]), (b"a\n", ["a"]), (b"a\n\n", ["a", ""])],
)
def test_only_the_end_of_the_last_line_is_no_content(path: Path, content: bytes, lines: list[str]) -> None:
    path.write_bytes(content)
    assert content_lines(path) == lines


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_told_by_its_mark(path: Path, encoding: str) -> None:
    mark = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}.get(encoding, b"")
    path.write_bytes(mark + "text".encode(encoding))
    with pytest.raises(CorruptData, match=r"texts\.csv is UTF-16: save it as UTF-8"):
        read_text(path)


def test_a_nul_character_is_refused_with_its_line(path: Path) -> None:
    path.write_bytes(b"a\nb\nc\0d\n")
    with pytest.raises(CorruptData, match=r"texts\.csv has a NUL character \(line 3\): save it as UTF-8"):
        read_text(path)


def test_another_encoding_is_refused_with_its_line_and_byte(path: Path) -> None:
    path.write_bytes(b"first\ncaf" + "é".encode("cp1252") + b"\n")
    with pytest.raises(CorruptData, match=r"is not UTF-8 \(line 2: byte 0xe9\): .*Windows-1252"):
        read_text(path)


def test_the_line_is_counted_behind_a_byte_order_mark_too(path: Path) -> None:
    path.write_bytes(codecs.BOM_UTF8 + b"a\n\xff\n")
    with pytest.raises(CorruptData, match=r"line 2: byte 0xff"):
        read_text(path)


def test_a_file_that_is_away_is_refused_by_name(path: Path) -> None:
    with pytest.raises(CorruptData, match=r"texts\.csv cannot be read: No such file or directory$"):
        read_text(path)
