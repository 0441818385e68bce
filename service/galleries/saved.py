"""Adversarial examples that a job saved (`save_adversarial`): an image or a text of a file of a shard.

The process that writes the files runs uploaded programs: a file that is malformed is not shown.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.service.api.artifacts import open_artifact, read_artifact
from assay.service.contract.errors import AssayError
from assay.service.contract.gallery import MAX_BYTES
from assay.service.contract.strict_json import parse_json
from assay.service.files.file_store import FileStore
from assay.service.files.safetensors_header import read_header
from assay.service.galleries.files import MAX_SIDE, SIGNATURE
from assay.service.store.rows import ArtifactRow

NAME = re.compile(r"(adversarial|trace)-(\d{3,6})-[A-Za-z0-9_.-]{1,200}-(\d{8,12})\.[a-z]+", re.ASCII)
CODES: Mapping[str, Literal["f", "d"]] = {"F32": "f", "F64": "d"}
COLOURS = {1: 0, 3: 2}  # Colour type of a PNG file, by channels
MAX_DEPTH = 4
MAX_VALUES = 3 * 1024 * 1024


@dataclass(frozen=True)
class SavedExample:
    """An adversarial example of a file: a picture, a text, or neither where it cannot be drawn."""

    file: str  # the file's name
    width: int = 0  # in pixels
    height: int = 0
    address: str = ""  # of the picture, which is in it
    text: str | None = None


def saved_file(
    rows: Iterable[ArtifactRow], evaluation: int, number: int, stem: str = "adversarial"
) -> ArtifactRow | None:
    """The file of this stem of the shard that has the evaluation's example `number`; of rows by name."""
    found = None
    for row in rows:
        match = NAME.fullmatch(row.name)
        if match and row.expired_at is None and (match[1], int(match[2])) == (stem, evaluation):
            found = row if int(match[3]) <= number else found
    return found


def read_saved(files: FileStore, row: ArtifactRow, example: str, *, drawn: bool) -> SavedExample | None:
    """The adversarial example of an id, or None; `drawn`: whether values are pixels in [0, 1]."""
    try:
        if row.name.endswith(".jsonl"):
            return _text(row, read_artifact(files, row, MAX_BYTES), example)
        return _image(files, row, example, drawn)
    except (AssayError, OSError, ValueError, KeyError, IndexError, TypeError):
        return None


def _text(row: ArtifactRow, content: bytes, example: str) -> SavedExample | None:
    lines = (parse_json(line, MAX_DEPTH) for line in content.split(b"\n") if line)
    texts = (str(one["text"]) for one in lines if one["id"] == example)
    return next((SavedExample(row.name, text=text) for text in texts), None)


def _image(files: FileStore, row: ArtifactRow, example: str, drawn: bool) -> SavedExample | None:
    with open_artifact(files, row) as file:
        # The file that was opened, not what its job has put under that name since.
        header = read_header(Path(f"/dev/fd/{file.fileno()}"))
        ids = parse_json(header.metadata["ids"].encode(), MAX_DEPTH)
        if not isinstance(ids, list) or example not in ids:
            return None
        shape, (dtype, first) = header.shapes["images"], header.places["images"]
        if not drawn or len(shape) != 4 or shape[1] not in COLOURS or dtype not in CODES:
            return SavedExample(row.name)
        _, channels, height, width = shape
        values: array[float] = array(CODES[dtype])
        if max(height, width) > MAX_SIDE or channels * height * width > MAX_VALUES:
            return SavedExample(row.name)
        size = channels * height * width * values.itemsize
        file.seek(first + ids.index(example) * size)
        values.frombytes(file.read(size))
    if ids.index(example) >= shape[0]:
        return None
    picture = base64.b64encode(_png(values, channels, height, width)).decode()
    return SavedExample(row.name, width, height, f"data:image/png;base64,{picture}")


def _png(values: array[float], channels: int, height: int, width: int) -> bytes:
    """A PNG file of pixels in [0, 1], by channel, row and column; NaN is black."""
    levels = bytes([int(255 * value + 0.5) if 0 < value < 1 else 255 * (value >= 1) for value in values])
    pixels = bytearray(len(levels))
    for channel in range(channels):
        pixels[channel::channels] = levels[channel * height * width : (channel + 1) * height * width]
    line = channels * width
    rows = b"".join(b"\x00" + pixels[at : at + line] for at in range(0, len(pixels), line))
    header = struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0)
    parts = (b"IHDR" + header, b"IDAT" + zlib.compress(rows), b"IEND")
    ends = ((struct.pack(">I", len(part) - 4), part, struct.pack(">I", zlib.crc32(part))) for part in parts)
    return SIGNATURE + b"".join(b"".join(end) for end in ends)
