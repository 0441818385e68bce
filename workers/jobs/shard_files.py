"""Files of an evaluate shard: its artifacts, and its candidates for the gallery of the evaluation."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from assay.service.contract.gallery import (
    Gallery,
    GalleryClass,
    GalleryExample,
    GalleryImage,
    GalleryItem,
    GalleryKind,
    GalleryMaps,
    GallerySeries,
    GalleryText,
)
from assay.service.contract.messages import EvaluateRequest
from assay.service.contract.records import ArtifactDescription, OutcomeExtra
from assay.service.files.file_store import write_file
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.evaluation.engine.gallery.images import colour
from assay.workers.evaluation.engine.outcomes import Outcomes, WithGallery

log = logging.getLogger(__name__)

KINDS: dict[type[GalleryExample], GalleryKind] = {
    GalleryImage: "image",
    GalleryMaps: "segmentation",
    GalleryText: "text",
    GallerySeries: "series",
}
NO_CLASS = 255  # in maps


def write_files(
    extra: OutcomeExtra, outcomes: Outcomes, request: EvaluateRequest, data: ExampleSet, protocol: str
) -> None:
    """Writes a shard's files and adds them to its report; a gallery that cannot be written is left out."""
    saved = [_write(request, file.stem, file.suffix, file.content) for file in outcomes.files()]
    if saved:
        extra["artifacts"] = saved
    items = outcomes.gallery if isinstance(outcomes, WithGallery) else None
    if not items:
        return
    item = request["spec"]["evaluations"][request["evaluation"]]
    try:
        gallery = Gallery(
            kind=KINDS[type(items[0])],
            evaluation=item["name"],
            params=dict(item["params"]),
            protocol=protocol,
            classes=named_classes(items, data.class_names),
            items=list(items),
        )
        content = gallery.model_dump_json().encode()
        extra["gallery"] = _write(request, "gallery", ".json", content)
    except Exception:  # it is no measurement: the shard counts without it
        log.exception("%s: the gallery could not be written", item["name"])


def named_classes(items: Sequence[GalleryItem], names: Sequence[str]) -> list[GalleryClass]:
    """The classes of some items with their names, those in label maps with their colours; ascending."""
    maps = isinstance(items[0], GalleryMaps)
    found: set[int] = set()
    for item in items:
        answers = [answer.prediction for answer in (item.before, item.after) if answer is not None]
        found.update(index for index in (item.label, *answers) if index is not None)
        found.update(item.shown if isinstance(item, GalleryMaps) else ())
    legend = [
        GalleryClass(
            index=index,
            name=names[index] if index < len(names) else str(index),
            colour=_hex(index) if maps else None,
        )
        for index in sorted(found)
        if not (maps and index == NO_CLASS)
    ]
    nothing = [GalleryClass(index=None, name="no class", colour=_hex(NO_CLASS))]
    return [*legend, *(nothing if maps and NO_CLASS in found else [])]


def _hex(index: int) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour(index))


def _write(request: EvaluateRequest, stem: str, suffix: str, content: bytes) -> ArtifactDescription:
    evaluation = request["spec"]["evaluations"][request["evaluation"]]["name"]
    name = f"{stem}-{request['evaluation']:03d}-{evaluation}-{request['start']:08d}{suffix}"
    return write_file(Path(request["folder"]) / name, content)
