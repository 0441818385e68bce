"""Files of jobs that pages show as pictures."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.artifacts import read_artifact
from assay.service.api.deps import JobDep, SettingsDep, StoreDep, StrictRoute, unchanged
from assay.service.contract.errors import NotFound
from assay.service.plots.kinds import KINDS
from assay.service.plots.routes import MAX_PICTURE_BYTES, SVG, is_picture
from assay.service.store.rows import ArtifactRow

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

TRAINING_CURVES = "training_curves.svg"  # Drawn by the training: earlier jobs have no other plot of it.
PICTURE_HEADERS = {  # A job wrote the file: as a page of its own it must not run, nor load or send anything.
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Authorization, Cookie",
}


@router.get("/jobs/{job_id}/pictures/{name}")
def picture(job: JobDep, name: str, request: Request, store: StoreDep, settings: SettingsDep) -> Response:
    """An SVG file of the job, for the pages of this service alone."""
    if not name.isprintable():
        raise NotFound(f"job {job.id} has no picture {name[:100]!r}")
    row = store.artifacts.get(job.id, name)
    if not is_picture(row):
        raise NotFound(f"artifact {row.name!r} is no picture that pages show: an SVG file of at most 4 MiB")
    etag = f'"{row.sha256}"'
    if (same := unchanged(request, etag)) is not None:
        return same
    content = read_artifact(settings.file_store, row, MAX_PICTURE_BYTES)
    return Response(content, media_type=SVG, headers={**PICTURE_HEADERS, "ETag": etag})


def own_pictures(files: Sequence[ArtifactRow]) -> list[ArtifactRow]:
    """The pictures of a job beside its plots of known kinds, which pages have in light and dark."""
    drawn = {f"plot-{kind}.svg" for kind in KINDS}
    if any(row.name == "plot-training.vl.json" for row in files):
        drawn.add(TRAINING_CURVES)
    return [row for row in files if is_picture(row) and row.name not in drawn]
