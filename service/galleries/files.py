"""Reading the galleries of jobs, and drawings of their items.

The process that writes galleries runs uploaded programs: a gallery that is malformed is not shown.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from pydantic import ValidationError

from assay.service.api.artifacts import UNREADABLE as UNREADABLE
from assay.service.api.artifacts import read_artifact
from assay.service.contract.errors import NotFound
from assay.service.contract.gallery import (
    MAX_BYTES,
    Gallery,
    GalleryAnswer,
    GalleryExample,
    GalleryImage,
    GalleryMaps,
    GallerySeries,
)
from assay.service.files.file_store import FileStore
from assay.service.store.rows import ArtifactRow

NAME = re.compile(r"gallery-(\d{3,6})-([A-Za-z0-9_.-]{1,200})\.json", re.ASCII)
# Galleries kept in memory, parsed: a page asks for each picture by itself.
KEPT = 4
SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_SIDE = 4096
# Pictures of an item, by the name in their address, with the field of the item.
PICTURES = {
    "clean": "clean",
    "changed": "changed",
    "difference": "difference",
    "truth": "truth",
    "before": "map_before",
    "after": "map_after",
}
DRAWN_WIDTH, DRAWN_HEIGHT = 320, 72
MAX_DRAWN_POINTS, MAX_DRAWN_FEATURES = 160, 3


@dataclass(frozen=True)
class GalleryFile:
    """The artifact with the gallery of an evaluation, by its index."""

    index: int
    evaluation: str
    row: ArtifactRow


@dataclass(frozen=True)
class Drawing:
    """A feature of a series and what became of it, as points of an SVG `polyline`."""

    feature: int  # its number
    clean: str  # points of the unchanged feature in a box of `DRAWN_WIDTH` by `DRAWN_HEIGHT`
    perturbed: str  # points of the changed feature
    low: float  # value at the lower edge, in standard deviations
    high: float  # value at the upper edge


def gallery_files(rows: Iterable[ArtifactRow]) -> list[GalleryFile]:
    """The galleries among the files of a job, by index; expired files and too large ones left out."""
    found = [
        GalleryFile(int(match[1]), match[2], row)
        for row in rows
        if (match := NAME.fullmatch(row.name)) and row.expired_at is None and row.size <= MAX_BYTES
    ]
    return sorted(found, key=lambda file: file.index)


def read_gallery(files: FileStore, file: GalleryFile) -> Gallery:
    """The gallery of a file."""
    return _parsed(files, file.row)


def gallery_or_none(files: FileStore, rows: Iterable[ArtifactRow], evaluation: int) -> Gallery | None:
    """The gallery of an evaluation among the files of a job; None without a gallery that can be read."""
    with suppress(*UNREADABLE):
        return next(
            (read_gallery(files, one) for one in gallery_files(rows) if one.index == evaluation), None
        )
    return None


def pictures_of(gallery: Gallery) -> dict[str, int]:
    """By the id of an example, its first item that has a picture."""
    pictured = [(one.id, at) for at, one in enumerate(gallery.items) if getattr(one, "changed", None)]
    return dict(reversed(pictured))


@lru_cache(maxsize=KEPT)
def _parsed(files: FileStore, row: ArtifactRow) -> Gallery:
    """The row has the hash of the content: a file with other content is read again."""
    try:
        return Gallery.model_validate_json(read_artifact(files, row, MAX_BYTES))
    except (ValidationError, OSError) as error:
        raise NotFound(f"the gallery {row.name!r} cannot be read: it is damaged") from error


def picture_of(item: GalleryExample, name: str) -> bytes:
    """A picture of an item as PNG."""
    stored = getattr(item, PICTURES[name], None) if name in PICTURES else None
    if not isinstance(item, GalleryImage | GalleryMaps) or not isinstance(stored, str):
        raise NotFound(f"this example has no picture {name[:50]!r}; allowed: {', '.join(PICTURES)}")
    try:
        content = base64.b64decode(stored, validate=True)
    except binascii.Error:
        content = b""
    if not content.startswith(SIGNATURE) or _size(content) != (item.width, item.height):
        raise NotFound(f"the picture {name!r} is damaged")
    return content


def _size(content: bytes) -> tuple[int, int] | None:
    if len(content) < 33 or content[12:16] != b"IHDR":
        return None
    width, height = struct.unpack(">II", content[16:24])
    return (width, height) if 0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE else None


def answer_text(answer: GalleryAnswer | None, names: dict[int | None, str]) -> str:
    """An answer as `7 (99.1 %)`."""
    if answer is None:
        return "-"
    if answer.value is not None:
        return f"{answer.value:.4g}"
    if answer.prediction is None:
        return "no finite answer"
    sure = "" if answer.confidence is None else f" ({100 * answer.confidence:.1f} %)"
    return f"{class_text(answer.prediction, names)}{sure}"


def class_text(label: int | None, names: dict[int | None, str]) -> str:
    """A class by its name, with its number where that says more."""
    if label is None:
        return "-"
    name = names.get(label, "")
    return name if name and name != str(label) else str(label)


def drawings(item: GallerySeries) -> list[Drawing]:
    """The features that changed most, thinned to what a small drawing can show."""
    pairs = zip(item.features, item.clean, item.perturbed, strict=False)
    complete = [(number, clean, changed) for number, clean, changed in pairs if clean and changed]
    complete.sort(key=lambda one: -max(abs(a - b) for a, b in zip(one[1], one[2], strict=False)))
    return [_drawing(*one) for one in sorted(complete[:MAX_DRAWN_FEATURES])]


def _drawing(feature: int, clean: Sequence[float], changed: Sequence[float]) -> Drawing:
    step = -(-max(len(clean), len(changed)) // MAX_DRAWN_POINTS)
    shown = clean[::step], changed[::step]
    low, high = min(map(min, shown)), max(map(max, shown))
    return Drawing(feature, _points(shown[0], low, high), _points(shown[1], low, high), low, high)


def _points(values: Sequence[float], low: float, high: float) -> str:
    across = DRAWN_WIDTH / max(1, len(values) - 1)
    # Halves: the sum or difference of two finite numbers may overflow.
    span = high / 2 - low / 2 or 1.0
    heights = ((high / 2 - value / 2) / span * (DRAWN_HEIGHT - 4) + 2 for value in values)
    return " ".join(f"{index * across:.0f},{height:.0f}" for index, height in enumerate(heights))
