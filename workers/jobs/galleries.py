"""The gallery of an evaluation, from the candidates of its shards."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress

from assay.service.contract.gallery import MAX_BYTES, Gallery, GalleryClass, GalleryItem, chosen
from assay.service.contract.records import ArtifactDescription
from assay.service.files.file_store import FileStore, StoreAway, read_bounded
from assay.service.files.json_bounds import JsonBounds
from assay.service.store.rows import OutcomeRow

log = logging.getLogger(__name__)
# Items of a shard, which has at most as many items as a gallery before they are cut to `MAX_BYTES`.
MAX_SHARD_BYTES = 16 * MAX_BYTES
BOUNDS = JsonBounds(MAX_SHARD_BYTES, values=500_000, containers=100_000)


def write_gallery(
    files: FileStore, job: str, index: int, name: str, rows: Sequence[OutcomeRow]
) -> list[ArtifactDescription]:
    """Writes the gallery of an evaluation from its outcome `rows`, the same in any order of its shards."""
    described = [row.extra["gallery"] for row in rows if "gallery" in row.extra]
    if not described:
        return []
    try:
        gallery = joined_gallery([_read(files, job, one) for one in described])
        content = gallery.model_dump_json().encode()
        return [files.write(job, f"gallery-{index:03d}-{name}.json", content)]
    except StoreAway:
        raise
    except Exception as error:
        log.warning("%s: evaluation %s, %r, has no gallery: %s", job, index, name, error)
        return []


def remove_parts(files: FileStore, job: str, rows: Sequence[OutcomeRow]) -> None:
    """Deletes the candidates of shards once their evaluation has its result."""
    for row in rows:
        if "gallery" in row.extra:
            with suppress(OSError):
                files.remove(job, row.extra["gallery"]["name"])


def joined_gallery(parts: Sequence[Gallery]) -> Gallery:
    """The gallery, at most `MAX_BYTES`, from the galleries of shards, at least one."""
    classes: dict[int | None, GalleryClass] = {one.index: one for part in parts for one in part.classes}
    ordered = sorted(classes.values(), key=lambda one: (one.index is None, one.index or 0))
    items = chosen([item for part in parts for item in part.items])
    whole = parts[0].model_copy(update={"classes": ordered, "items": []})
    left = MAX_BYTES - len(whole.model_dump_json()) - 100
    fitting: list[GalleryItem] = []
    for item in items:
        left -= len(item.model_dump_json().encode()) + 1
        if left < 0:
            break
        fitting.append(item)
    return whole.model_copy(update={"items": fitting, "left_out": len(items) - len(fitting)})


def _read(files: FileStore, job: str, described: ArtifactDescription) -> Gallery:
    """The candidates of a shard: a stranger's file, bounded before it is parsed."""
    content = read_bounded(files, job, described["name"], described["sha256"], MAX_SHARD_BYTES)
    if hashlib.sha256(content).hexdigest() != described["sha256"]:
        raise ValueError(f"{described['name']} is not the file that its shard wrote")
    BOUNDS.check(content)
    return Gallery.model_validate_json(content)
