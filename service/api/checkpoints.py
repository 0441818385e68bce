"""Routes of checkpoints: upload, list, look, delete."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from service.api.artifacts import remove_artifacts
from service.api.deps import CatalogDep, DispatcherDep, SettingsDep, StoreDep, only
from service.api.errors import documented
from service.api.guard import CHECKPOINTS_PATH
from service.api.views import checkpoint_view
from service.body import parse_json
from service.contract.catalog import Catalog
from service.contract.checkpoints import GIVEN, INSIDE, NAME_PATTERN, Checkpoint, model_of_weights
from service.contract.errors import InvalidState, MalformedJson, NotFound, TooLarge
from service.contract.program_file import BadProgram, is_archive, open_program
from service.contract.report import Loc, Report
from service.contract.results import Page
from service.contract.weights import EXPORTED
from service.dispatch import Dispatcher
from service.safetensors_header import read_header
from service.settings import Settings
from service.store.artifacts import WEIGHTS
from service.store.rows import CheckpointRow
from service.store.tenants import TenantStore
from service.uploads import Upload

logger = logging.getLogger(__name__)
router = APIRouter(prefix=CHECKPOINTS_PATH, tags=["checkpoints"])

MAX_DEPTH = 16
PathName = Annotated[str, Path(description="the checkpoint's name", max_length=200)]
Name = Annotated[str, Query(pattern=NAME_PATTERN, description="jobs use it as `weights.checkpoint`")]
Model = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=4000,  # servers take no longer addresses than 64 KiB, and a character may be twelve bytes
        description="of which model the weights are: its name, or `{name, params}` as JSON; files of training"
        " jobs, and exported programs, say it themselves",
    ),
]


@router.post(
    "",
    operation_id="upload_checkpoint",
    summary="Upload weights or an exported program",
    status_code=202,
    response_model=Checkpoint,
    responses={
        200: {"model": Checkpoint, "description": "This file was uploaded before under this name"},
        202: {
            "headers": {"Location": {"description": "path of the checkpoint", "schema": {"type": "string"}}}
        },
        **documented(InvalidState, TooLarge),
    },
    dependencies=[only("name", "model")],
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_checkpoint(
    request: Request,
    name: Name,
    store: StoreDep,
    catalog: CatalogDep,
    settings: SettingsDep,
    dispatcher: DispatcherDep,
    model: Model = None,
) -> Response:
    """Stores a safetensors file, or an exported program (.pt2). A worker checks it; jobs that use it wait."""
    given = None if model is None else reference_in(model, GIVEN)
    upload = await run_in_threadpool(Upload, settings.artifacts)
    try:
        async for chunk in request.stream():
            await run_in_threadpool(upload.write, chunk)
        await run_in_threadpool(upload.close)
        row, queued = await run_in_threadpool(_register, upload, name, given, store, catalog, settings)
    finally:
        upload.discard()
    if queued:
        await run_in_threadpool(_ring, dispatcher, row)
    return JSONResponse(
        checkpoint_view(row).model_dump(mode="json"),
        status_code=202 if queued else 200,
        headers={"Location": f"{CHECKPOINTS_PATH}/{row.name}"},
    )


@router.get(
    "",
    operation_id="list_checkpoints",
    summary="List the checkpoints",
    responses=documented(),
    dependencies=[only()],
)
def list_checkpoints(store: StoreDep) -> Page[Checkpoint]:
    """All checkpoints of the caller's tenant, by name."""
    return Page(items=[checkpoint_view(row) for row in store.checkpoints.all()])


@router.get(
    "/{name}",
    operation_id="get_checkpoint",
    summary="Look at a checkpoint",
    responses=documented(NotFound),
    dependencies=[only()],
)
def get_checkpoint(name: PathName, store: StoreDep) -> Checkpoint:
    """State, model and hash; of a rejected one the reason, with every key at fault."""
    return checkpoint_view(store.checkpoints.get(name))


@router.delete(
    "/{name}",
    operation_id="delete_checkpoint",
    summary="Delete a checkpoint",
    status_code=204,
    responses=documented(NotFound, InvalidState),
    dependencies=[only()],
)
def delete_checkpoint(name: PathName, store: StoreDep, settings: SettingsDep) -> None:
    """Deletes the checkpoint and its file, unless a job that has not ended needs it."""
    remove_artifacts(settings.artifacts, store.checkpoints.delete(name))


def _register(
    upload: Upload,
    name: str,
    given: Mapping[str, Any] | None,
    store: TenantStore,
    catalog: Catalog,
    settings: Settings,
) -> tuple[CheckpointRow, bool]:
    program = is_archive(upload.path)
    model = model_of_weights(catalog, given, _program(upload) if program else _stated_inside(upload))
    if model["name"] == EXPORTED and not program:
        _refuse(GIVEN, f"the model {EXPORTED!r} is an exported program (.pt2), and this file is none")
    return store.checkpoints.add(
        name,
        model=model,
        sha256=upload.sha256,
        size=upload.size,
        place=lambda job_id: upload.place(settings.artifacts / job_id / WEIGHTS),
    )


def _program(upload: Upload) -> dict[str, Any]:
    """The model of an exported program.

    Raises:
        InvalidSpec: the archive is none, or has what is never taken.
    """
    try:
        open_program(upload.path)
    except BadProgram as error:
        _refuse(("body",), f"this is no exported program that can be taken: {error}")
    return {"name": EXPORTED}


def _stated_inside(upload: Upload) -> dict[str, Any] | None:
    """The model that the header of a safetensors file names; None when it names none."""
    stated = read_header(upload.path).metadata.get("model")
    return None if stated is None else reference_in(stated, INSIDE)


def _refuse(loc: Loc, message: str) -> NoReturn:
    report = Report()
    report.add(loc, message, allowed="a file that torch.export.save (.pt2) or safetensors has written")
    report.raise_if_any()
    raise AssertionError("there is a remark")


def reference_in(text: str, loc: Loc) -> dict[str, Any]:
    """The model that a text means: a name alone, or {"name", "params"} as JSON; other fields are left out.

    Raises:
        InvalidSpec: it is neither.
    """
    report, reference = Report(), None
    try:
        reference = parse_json(text.encode(), MAX_DEPTH) if text.lstrip().startswith("{") else {"name": text}
    except (MalformedJson, UnicodeEncodeError) as error:
        report.add(loc, f"it begins like JSON and is none: {error}", given=text)
    if reference is not None and not isinstance(reference.get("name"), str):
        report.add((*loc, "name"), "must be a model's name", given=reference.get("name"))
    if reference is not None and not isinstance(reference.get("params", {}), dict):
        report.add((*loc, "params"), "must be an object", given=json.dumps(reference["params"])[:200])
    report.raise_if_any()
    assert reference is not None
    return {key: reference[key] for key in ("name", "params") if key in reference}


def _ring(dispatcher: Dispatcher, row: CheckpointRow) -> None:
    """Rings the doorbell; the check is stored, so a broken bell must not fail the call."""
    try:
        dispatcher.ring(row.job_id, "auto")
    except Exception:
        logger.exception("the doorbell for checkpoint %s failed; workers will find it by polling", row.name)
