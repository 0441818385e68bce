"""Galleries of adversarial and perturbed examples: the page of an evaluation, and its pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.deps import JobDep, SettingsDep, StoreDep, StrictRoute, unchanged
from assay.service.api.views import job_view
from assay.service.contract.errors import NotFound
from assay.service.contract.gallery import Gallery, GalleryImage, GalleryItem, GalleryMaps, GallerySeries
from assay.service.contract.stored_specs import evaluations_in, user_spec
from assay.service.dashboard.forms import see
from assay.service.dashboard.frame import render
from assay.service.galleries.files import (
    UNREADABLE,
    Drawing,
    GalleryFile,
    answer_text,
    class_text,
    drawings,
    gallery_files,
    picture_of,
    read_gallery,
)
from assay.service.plots.pictures import PICTURE_HEADERS
from assay.service.reports.numbers import chosen_params, set_params, shown_params, split_params
from assay.service.settings import Settings
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

router = APIRouter(route_class=StrictRoute, include_in_schema=False)
NAVIGATION = None

# On the page of a job: galleries that are tried until a gallery can be read, and its examples that are shown.
TRIED, PREVIEWED = 3, 4
MAX_WORDS = 100  # Words of a text that are shown; galleries have up to 256.
SHOWN_WIDTH = 128  # Small pictures are shown larger, at least so wide.


@dataclass(frozen=True)
class ShownItem:
    """An item of a gallery, with texts for a page."""

    number: int  # its place in the gallery, from 0
    item: GalleryItem
    clean: int | None  # number of the item with its clean picture; None without pictures
    scale: int  # whole number by which small pictures are enlarged
    label: str  # the true class as text
    before: str
    after: str
    drawings: tuple[Drawing, ...]

    @property
    def outcome(self) -> str:
        """What became of the example, in a word."""
        if self.item.kind == "text" and self.item.label is None:
            return "words swapped" if self.item.succeeded else "unchanged"
        if self.item.kind == "segmentation":
            return "fewer pixels right" if self.item.succeeded else "survived"
        return "broken" if self.item.succeeded else "survived"


@dataclass(frozen=True)
class Preview:
    """The first examples of a gallery."""

    file: GalleryFile
    gallery: Gallery
    items: Sequence[ShownItem]


@router.get("/jobs/{job_id}/gallery/{evaluation}")
def show_gallery(
    job: JobDep, evaluation: int, request: Request, store: StoreDep, settings: SettingsDep
) -> Response:
    """The examples of an evaluation before and after, with links to the other galleries of the job."""
    files = gallery_files(store.artifacts.of(job.id))
    file = _file(files, job, evaluation)
    gallery = read_gallery(settings.file_store, file)
    values = {
        "title": f"Gallery of {file.evaluation}",
        "section": "/jobs",
        "job": job_view(store, job),
        "file": file,
        "files": files,
        "gallery": gallery,
        "params": chosen_params(
            gallery.evaluation,
            shown_params(gallery.evaluation, gallery.params, _data(job, evaluation), gallery.protocol),
        ),
        "items": shown_items(gallery),
        "legend": [one for one in gallery.classes if one.colour is not None],
        "labels": evaluation_labels(store.results.of(job.id)),
        "max_words": MAX_WORDS,
    }
    return render(request, "gallery.html", values)


@router.get("/jobs/{job_id}/gallery/{evaluation}/{number}/{name}.png")
def show_picture(
    job: JobDep,
    evaluation: int,
    number: int,
    name: str,
    request: Request,
    store: StoreDep,
    settings: SettingsDep,
) -> Response:
    """A picture of an item: clean, changed, difference, truth, before or after."""
    content = picture_of(_item(gallery_of(store, settings, job, evaluation), number), name)
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    if (same := unchanged(request, etag)) is not None:
        return same
    return Response(content, media_type="image/png", headers={**PICTURE_HEADERS, "ETag": etag})


@router.get("/jobs/{job_id}/gallery/{evaluation}/{number}")
def show_example_of(
    job: JobDep, evaluation: int, number: int, store: StoreDep, settings: SettingsDep
) -> Response:
    """Sends the browser to the page of an item's example."""
    item = _item(gallery_of(store, settings, job, evaluation), number)
    places = (
        one for shard in store.results.columns(job.id, evaluation, ("id",)) for one in shard.get("id", ())
    )
    place = next((place for place, example in enumerate(places) if example == item.id), None)
    if place is None:
        raise NotFound(f"evaluation {evaluation} of job {job.id} has no outcome of example {item.id[:100]!r}")
    return see(f"/jobs/{job.id}/examples/{evaluation}/{place}")


def _item(gallery: Gallery, number: int) -> GalleryItem:
    if not 0 <= number < len(gallery.items):
        raise NotFound(f"the gallery has no example {number}; allowed: 0 to {len(gallery.items) - 1}")
    return gallery.items[number]


def gallery_of(store: TenantStore, settings: Settings, job: JobRow, evaluation: int) -> Gallery:
    """The gallery of an evaluation."""
    return read_gallery(
        settings.file_store, _file(gallery_files(store.artifacts.of(job.id)), job, evaluation)
    )


def preview_of(settings: Settings, files: Sequence[GalleryFile], strongest: int | None) -> Preview | None:
    """The first examples of a gallery that has some and can be read; first of the evaluation `strongest`."""
    for file in sorted(files, key=lambda file: file.index != strongest)[:TRIED]:
        with suppress(*UNREADABLE):
            gallery = read_gallery(settings.file_store, file)
            if gallery.items:
                return Preview(file, gallery, shown_items(gallery, PREVIEWED))
    return None


def _data(job: JobRow, evaluation: int) -> Mapping[str, Any]:
    own = evaluations_in(job.spec)[evaluation : evaluation + 1]
    return (own and own[0]["data"]) or user_spec(job.spec)["data"]


def evaluation_labels(stored: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Evaluations by name, with the parameters that tell them from others of the name."""
    given = [
        (name, set_params(shown_params(name, one["params"], one["data"], one["protocol"])))
        for one in stored.values()
        for name in [str(one["name"])]
    ]
    texts, _ = split_params(given)
    return {
        index: f"{name} {text}".strip() for index, (name, _), text in zip(stored, given, texts, strict=True)
    }


def _file(files: list[GalleryFile], job: JobRow, evaluation: int) -> GalleryFile:
    for file in files:
        if file.index == evaluation:
            return file
    known = ", ".join(str(file.index) for file in files[:20]) or "none, as the job has no galleries"
    raise NotFound(f"evaluation {evaluation} of job {job.id} has no gallery; those with one: {known}")


def shown_items(gallery: Gallery, limit: int | None = None, width: int = SHOWN_WIDTH) -> list[ShownItem]:
    """The first items of a gallery, broken ones first, with texts for a page; `width`: of small pictures."""
    names = {one.index: one.name for one in gallery.classes}
    clean: int | None = None
    found = []
    for number, item in enumerate(gallery.items):
        clean = number if getattr(item, "clean", None) is not None else clean
        found.append(
            ShownItem(
                number=number,
                item=item,
                clean=clean if isinstance(item, GalleryImage | GalleryMaps) else None,
                scale=_scale(item, width),
                label=class_text(item.label, names),
                before=answer_text(item.before, names),
                after=answer_text(item.after, names),
                drawings=tuple(drawings(item)) if isinstance(item, GallerySeries) else (),
            )
        )
    return sorted(found, key=lambda one: not one.item.succeeded)[:limit]


def _scale(item: GalleryItem, least: int) -> int:
    width = item.width if isinstance(item, GalleryImage | GalleryMaps) else least
    return max(1, least // max(1, width))
