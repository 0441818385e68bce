"""Routes of the catalog: its components, and what the codes of warnings mean."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request, Response

from assay.service.api.deps import CatalogDep, StrictRouter, unchanged
from assay.service.api.errors import documented
from assay.service.api.openapi import COMPONENT_EXAMPLE
from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import Component
from assay.service.contract.errors import ErrorDetail, InvalidSpec, NotFound
from assay.service.contract.problems import nearest
from assay.service.contract.results import Page
from assay.service.contract.warning_codes import WarningMeaning, warning_meanings

router = StrictRouter(prefix="/api/v1", tag="catalog")

NOT_MODIFIED: dict[str, Any] = {"description": "The catalog has the ETag in `If-None-Match`"}
ComponentKind = Literal[
    "model", "attention", "attack", "corruption", "words", "data", "recipe", "evaluation", "suite", "task"
]


@router.get(
    "/catalog",
    summary="List all components",
    response_model=Page[Component],
    responses={304: NOT_MODIFIED, **documented()},
)
def list_catalog(
    catalog: CatalogDep,
    request: Request,
    response: Response,
    kind: ComponentKind | None = None,
    task: Annotated[str | None, Query(max_length=200, description="components of this task")] = None,
) -> Page[Component] | Response:
    """Models, attacks, data sets and so on, each with the JSON Schema of its parameters."""
    tasks = sorted({one for entry in catalog.list() for one in entry.tasks})
    if task is not None and task not in tasks:
        message = "no component has this task"
        found = ErrorDetail(loc=["query", "task"], message=message, given=task, allowed=tasks)
        raise InvalidSpec(message, [found.model_copy(update={"nearest": nearest(task, tasks)})])
    etag = response.headers["ETag"] = etag_of(catalog, request)
    items = [one for one in catalog.list(kind) if task is None or task in one.tasks]
    return unchanged(request, etag) or Page(items=items)


@router.get(
    "/catalog/{kind}/{name}",
    summary="Look at a component",
    response_model=Component,
    responses={304: NOT_MODIFIED, **documented(NotFound)},
)
def get_component(
    kind: Annotated[str, Path(examples=[COMPONENT_EXAMPLE[0]])],
    name: Annotated[str, Path(examples=[COMPONENT_EXAMPLE[1]])],
    catalog: CatalogDep,
    request: Request,
    response: Response,
) -> Component | Response:
    """A component; an unknown name is answered with the nearest known name."""
    component = catalog.find(kind, name)
    etag = response.headers["ETag"] = etag_of(catalog, request)
    return unchanged(request, etag) or component


@router.get("/warnings", summary="What warnings mean", response_model=Page[WarningMeaning])
def list_warnings() -> Page[WarningMeaning]:
    """Every code that a warning may have: severity, where it appears, cause, evidence and remedy."""
    return Page(items=warning_meanings())


def etag_of(catalog: Catalog, request: Request) -> str:
    """The tag of an answer: the same for the same catalog, version of the service, path and query."""
    parts = (catalog.digest, request.app.version, request.url.path, request.url.query)
    return f'"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"'
