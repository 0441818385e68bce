"""Text files that users bring: UTF-8, with or without a byte order mark; refusals name file and line."""

from __future__ import annotations

import codecs
from pathlib import Path

from assay.workers.data.formats.dataset import CorruptData, reason_of

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(path: Path) -> str:
    """A file's text, with its line breaks."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CorruptData(f"{path} cannot be read: {reason_of(error)}") from error
    if content.startswith(UTF_16):
        raise CorruptData(f"{path} is UTF-16: save it as UTF-8")
    if (place := content.find(0)) >= 0:
        line = content.count(b"\n", 0, place) + 1
        raise CorruptData(f"{path} has a NUL character (line {line}): save it as UTF-8 text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise CorruptData(
            f"{path} is not UTF-8 (line {line}: byte 0x{byte:02x}): save it as UTF-8; Windows programs often"
            " write Windows-1252"
        ) from error


def read_lines(path: Path) -> list[str]:
    """Lines without their ends, as Unix, Windows or old Macs write them."""
    return read_text(path).replace("\r\n", "\n").replace("\r", "\n").split("\n")


def content_lines(path: Path) -> list[str]:
    """`read_lines` without the empty text behind the last line's end."""
    lines = read_lines(path)
    return lines[:-1] if lines[-1] == "" else lines
