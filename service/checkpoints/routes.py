"""Routes of checkpoints: upload, list, look, delete."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from assay.service.api.artifacts import remove_artifacts
from assay.service.api.authentication import CHECKPOINTS_PATH
from assay.service.api.deps import (
    CatalogDep,
    Cursor,
    DispatcherDep,
    Limit,
    SettingsDep,
    StoreDep,
    StrictRouter,
    located,
    stored,
)
from assay.service.api.errors import documented
from assay.service.api.jobs import ring
from assay.service.api.quota import quota_of
from assay.service.api.upload_file import Hold, Upload
from assay.service.api.views import job_error, view
from assay.service.catalog.catalog import Catalog
from assay.service.checkpoints.uploads import GIVEN, model_of_file, names_in, reference_in
from assay.service.checkpoints.wire import Checkpoint
from assay.service.contract.errors import InvalidState, NotFound
from assay.service.contract.results import Page
from assay.service.contract.weights.checkpoints import NAME_PATTERN, Faults
from assay.service.contract.weights.options import Positions, WeightsReading, normalization_in
from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.settings import Settings
from assay.service.store.artifacts import UPLOAD, WEIGHTS
from assay.service.store.tenants import TenantStore

router = StrictRouter(prefix=CHECKPOINTS_PATH, tag="checkpoints")
ROUTERS, BEFORE = (router,), "compare"


def body_limits(settings: Settings) -> dict[str, int]:
    """Bytes of an uploaded file, by path."""
    return {CHECKPOINTS_PATH: settings.max_checkpoint_bytes}


PathName = Annotated[str, Path(description="the checkpoint's name", max_length=200)]
NewName = Annotated[str, Query(pattern=NAME_PATTERN, description="jobs use it as `weights.checkpoint`")]
GivenModel = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=4000,  # servers limit addresses to 64 KiB, and a character may be twelve bytes
        description="the model of the weights: its name, or `{name, params}` as JSON; files of training"
        " jobs, and exported programs, say it themselves",
    ),
]
GivenNormalization = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=4000,
        description="what the weights of a file from elsewhere were trained with: `imagenet`, `inception`,"
        " `data` (the normalisation of each job's data), or `{mean, std}` as JSON, for pixels in [0, 1];"
        " unsaid, it is the normalisation of the data, and results carry the warning `foreign_normalization`",
    ),
]
Resizing = Annotated[
    Positions | None,
    Query(description="how position embeddings of another grid are resized; unsaid, they do not fit"),
]
ClassNames = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=4000,
        description="names of the logits in order, by which the data's classes are found: `A,B,...`, or a"
        " list or id2label as JSON; longer lists belong into the file (`extra/assay.json` of a program)",
    ),
]


@router.post(
    "",
    summary="Upload weights or an exported program",
    status_code=202,
    response_model=Checkpoint,
    responses={
        200: {"model": Checkpoint, "description": "This file was uploaded before under this name"},
        202: located("checkpoint"),
        **documented(InvalidState),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_checkpoint(
    request: Request,
    name: NewName,
    store: StoreDep,
    catalog: CatalogDep,
    settings: SettingsDep,
    dispatcher: DispatcherDep,
    model: GivenModel = None,
    normalization: GivenNormalization = None,
    positions: Resizing = None,
    class_names: ClassNames = None,
) -> Response:
    """Stores a safetensors file, or an exported program (.pt2). A worker checks it; jobs that use it wait."""
    given = None if model is None else reference_in(model, GIVEN)
    stated = None if normalization is None else normalization_in(normalization)
    reading: WeightsReading = {"normalization": stated, "positions": positions}
    if class_names is not None:
        reading["class_names"] = names_in(class_names)
    upload_id, quota = uuid.uuid4().hex, quota_of(settings)

    def reserve(size: int, begun: bool) -> int:
        idle = settings.upload_idle_seconds
        return store.checkpoints.reserve(upload_id, name, size, quota, idle, begun=begun)

    hold = await run_in_threadpool(Hold, reserve, declared_size(request))
    try:
        upload = await run_in_threadpool(Upload, settings.artifacts, hold.room, upload_id)
        try:
            async for chunk in request.stream():
                await run_in_threadpool(upload.write, chunk)
                if hold.due(upload.size):
                    await run_in_threadpool(hold.grow, upload.size)
            await run_in_threadpool(upload.close)
            row, queued = await run_in_threadpool(
                _register, upload, name, given, reading, store, catalog, settings
            )
        finally:
            upload.discard()
    except BaseException:
        await run_in_threadpool(store.checkpoints.release, upload_id)
        raise
    if queued:
        await run_in_threadpool(ring, dispatcher, row.job_id, "auto")
    path = f"{CHECKPOINTS_PATH}/{row.name}"
    return stored(checkpoint_view(row), path, status=202 if queued else 200)


@router.get("", summary="List the checkpoints")
def list_checkpoints(store: StoreDep, limit: Limit = 50, cursor: Cursor | None = None) -> Page[Checkpoint]:
    """A page of the checkpoints of the caller's tenant, by name; `next_cursor` leads to the next page."""
    rows, following = store.checkpoints.page(limit=limit, cursor=cursor)
    return Page(items=[checkpoint_view(row) for row in rows], next_cursor=following)


@router.get("/{name}", summary="Look at a checkpoint", responses=documented(NotFound))
def get_checkpoint(name: PathName, store: StoreDep) -> Checkpoint:
    """State, model and hash; for a rejected checkpoint the reason, with every key at fault."""
    return checkpoint_view(store.checkpoints.get(name))


@router.delete(
    "/{name}", summary="Delete a checkpoint", status_code=204, responses=documented(NotFound, InvalidState)
)
def delete_checkpoint(name: PathName, store: StoreDep, settings: SettingsDep) -> None:
    """Deletes the checkpoint and its file, unless a job that has not ended needs it."""
    remove_artifacts(settings.file_store, store.checkpoints.delete(name))


def _register(
    upload: Upload,
    name: str,
    given: Mapping[str, Any] | None,
    reading: WeightsReading,
    store: TenantStore,
    catalog: Catalog,
    settings: Settings,
) -> tuple[CheckpointRow, bool]:
    model = model_of_file(catalog, given, upload.path, reading)
    with upload.staged(settings.file_store):
        return store.checkpoints.add(
            name,
            model=model,
            sha256=upload.sha256,
            size=upload.size,
            place=lambda job_id: upload.place(settings.file_store, job_id, WEIGHTS),
            reading=reading,
            quota=quota_of(settings),
            upload=upload.path.name.removeprefix(UPLOAD),
        )


def checkpoint_view(row: CheckpointRow) -> Checkpoint:
    """A checkpoint as users see it."""
    verdict = row.verdict or {}
    faults = {name: found for name, found in verdict.items() if name in Faults.model_fields}
    return view(
        Checkpoint,
        row,
        layout=verdict.get("layout"),
        classes=verdict.get("classes"),
        channels=verdict.get("channels"),
        program=verdict.get("program"),
        normalization=row.reading["normalization"],
        positions=row.reading["positions"],
        class_names=row.reading.get("class_names"),
        left_out=verdict.get("left_out", []),
        resized=verdict.get("resized", []),
        error=job_error(row),
        faults=faults if row.state == "rejected" and faults else None,
    )


def declared_size(request: Request) -> int:
    """The declared size of a body; 0 without a size, or for a malformed size, which the server refuses."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
