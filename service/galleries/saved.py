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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from assay.service.api.artifacts import open_artifact, read_artifact
from assay.service.contract import traces
from assay.service.contract.errors import AssayError
from assay.service.contract.findings.traces import Step, TraceFile
from assay.service.contract.gallery import MAX_BYTES
from assay.service.contract.strict_json import parse_json
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
    png: bytes | None = None
    text: str | None = None

    @property
    def address(self) -> str:
        """The picture as the address of an image."""
        return "data:image/png;base64," + base64.b64encode(self.png or b"").decode()


def saved_file(
    rows: Iterable[ArtifactRow], evaluation: int, number: int, stem: str = "adversarial"
) -> ArtifactRow | None:
    """The file of this stem of the shard that has the evaluation's example `number`."""
    found = [
        (int(match[3]), row)
        for row in rows
        if (match := NAME.fullmatch(row.name)) and (match[1], int(match[2])) == (stem, evaluation)
        if row.expired_at is None
    ]
    return max(((start, row) for start, row in found if start <= number), default=(0, None), key=_start)[1]


def _start(one: tuple[int, ArtifactRow | None]) -> int:
    return one[0]


def read_saved(folder: Path, row: ArtifactRow, example: str, *, drawn: bool) -> SavedExample | None:
    """The adversarial example of an example's id; None where the file has none, or cannot be read.

    `drawn`: whether values are pixels in [0, 1].
    """
    try:
        if row.name.endswith(".jsonl"):
            return _text(row, read_artifact(folder, row, MAX_BYTES), example)
        return _image(folder, row, example, drawn)
    except (AssayError, OSError, ValueError, KeyError, IndexError, TypeError):
        return None


def read_steps(folder: Path, row: ArtifactRow | None, example: str) -> list[Step]:
    """The steps of an attack on an example; empty where the file has none, or cannot be read."""
    with suppress(AssayError, ValidationError, OSError):
        if row is not None:
            content = read_artifact(folder, row, traces.MAX_BYTES)
            return TraceFile.model_validate_json(content).examples.get(example, [])
    return []


def _text(row: ArtifactRow, content: bytes, example: str) -> SavedExample | None:
    lines = (parse_json(line, MAX_DEPTH) for line in content.split(b"\n") if line)
    return next(
        (SavedExample(row.name, text=str(one["text"])) for one in lines if one["id"] == example), None
    )


def _image(folder: Path, row: ArtifactRow, example: str, drawn: bool) -> SavedExample | None:
    with open_artifact(folder, row) as file:
        # The file that was opened, not what its job has put under that name since.
        header = read_header(Path(f"/dev/fd/{file.fileno()}"))
        ids = parse_json(header.metadata["ids"].encode(), MAX_DEPTH)
        if example not in ids:
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
    return SavedExample(row.name, width, height, _png(values, channels, height, width))


def _png(values: array[float], channels: int, height: int, width: int) -> bytes:
    """A PNG file of pixels in [0, 1], by channel, row and column; NaN is black."""
    levels = bytes([int(255 * value + 0.5) if 0 < value < 1 else 255 * (value >= 1) for value in values])
    pixels = bytearray(len(levels))
    for channel in range(channels):
        pixels[channel::channels] = levels[channel * height * width : (channel + 1) * height * width]
    line = channels * width
    rows = b"".join(b"\x00" + pixels[at : at + line] for at in range(0, len(pixels), line))
    header = struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
