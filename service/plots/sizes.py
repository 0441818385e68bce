"""Sizes of plots, so that a page has room for plots that load when they are scrolled to."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from assay.service.api.artifacts import UNREADABLE, open_artifact
from assay.service.files.file_store import FileStore
from assay.service.plots.marks import panel_height, panel_width
from assay.service.plots.theme import HEIGHT, Vega
from assay.service.settings import Settings
from assay.service.store.rows import ArtifactRow

logger = logging.getLogger(__name__)

Size = tuple[int, int]  # Width and height in pixels; pages use their ratio.
USUAL: Size = (430, 251)  # The size of plots that are not stored: plots of a running job, and of several jobs
LEGEND = 155  # Height of a legend with its title, which low panels have beside them
SCALE = 1.4  # So that a plot's letters, of 9 to 11 pixels, have the size of a page's
HEAD_BYTES = 4096
MAX_SIDE = 10_000
_TAG = re.compile(rb"<svg\b[^>]*>")
_NUMBER = rb"([0-9]{1,5}(?:\.[0-9]{1,9})?)"
_SIDES = tuple(
    re.compile(rb"""\s%s=["']%s(?:px|pt)?["']""" % (side, _NUMBER)) for side in (b"width", b"height")
)
_BOX = re.compile(rb"""\sviewBox=["']\s*[-0-9.]+[ ,]+[-0-9.]+[ ,]+%s[ ,]+%s\s*["']""" % (_NUMBER, _NUMBER))


def usual_size(spec: Vega) -> Size:
    """About the size of a plot on a page, by its panels."""
    panels = spec.get("hconcat") or spec.get("concat") or [spec]
    columns = spec.get("columns", len(panels))
    more = sum(panel_width(panel) for panel in panels[:columns]) - panel_width({})
    heights = [panel_height(panel) for panel in panels]
    rows = [max(heights[start : start + columns]) - HEIGHT for start in range(0, len(panels), columns)]
    return _enlarged((USUAL[0] + more, sum(max(LEGEND, USUAL[1] + row) for row in rows)))


def _enlarged(size: Size) -> Size:
    return round(SCALE * size[0]), round(SCALE * size[1])


def page_width(svg: bytes) -> int:
    """The width of an SVG on a page."""
    return _enlarged(svg_size(svg[:HEAD_BYTES]) or USUAL)[0]


def plot_sizes(
    settings: Settings, usual: Mapping[str, Size], files: Sequence[ArtifactRow]
) -> dict[str, Size]:
    """The size of each plot of a job on a page: as stored when the job ended and enlarged, or the usual."""
    stored = {row.name: row for row in files}
    found = {kind: picture_size(settings, stored.get(f"plot-{kind}.svg")) for kind in usual}
    return {kind: usual[kind] if size is None else _enlarged(size) for kind, size in found.items()}


def picture_size(settings: Settings, row: ArtifactRow | None) -> Size | None:
    """The size of an SVG file; None where it is expired, cannot be read, or does not say."""
    if row is None or row.expired_at is not None:
        return None
    try:
        return _size_of(settings.file_store, row)
    except UNREADABLE as error:
        logger.warning("the size of %s cannot be read: %s", row.name, error)
        return None


@lru_cache(maxsize=4096)
def _size_of(files: FileStore, row: ArtifactRow) -> Size | None:
    """The row has the hash of the content: a file with other content is read again."""
    with open_artifact(files, row) as file:
        return svg_size(file.read(HEAD_BYTES))


def svg_size(head: bytes) -> Size | None:
    """Width and height of an SVG, 1 to 10,000 each, from its first bytes; None where it does not say."""
    tag = _TAG.search(head)
    if tag is None:
        return None
    sides = [pattern.search(tag[0]) for pattern in _SIDES]
    box = _BOX.search(tag[0])
    texts = [side[1] for side in sides if side is not None]
    if len(texts) < len(sides):
        texts = [] if box is None else [box[1], box[2]]
    numbers = [round(float(text)) for text in texts]
    if not numbers or not all(1 <= number <= MAX_SIDE for number in numbers):
        return None
    return numbers[0], numbers[1]
