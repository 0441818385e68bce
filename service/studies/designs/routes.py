"""Routes of registered designs: register, list, get, delete; `service.studies.routes` posts their studies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response

from assay.service.api.deps import (
    BodyDep,
    Cursor,
    Limit,
    StoreDep,
    StrictRouter,
    SubmissionDep,
    located,
    stored,
)
from assay.service.api.errors import documented
from assay.service.contract.errors import (
    InvalidState,
    MalformedJson,
    NotFound,
    TooManyRequests,
    UnsupportedMediaType,
)
from assay.service.contract.results import Page
from assay.service.contract.times import iso
from assay.service.files.canonical_json import canonical
from assay.service.studies.designs.rows import DesignRow
from assay.service.studies.designs.wire import PREFIX, DesignLinks, DesignSummary, RegisteredDesign
from assay.service.studies.posting import checked_study
from assay.service.studies.store import Studies

DESIGNS_PATH = "/api/v1/designs"
router = StrictRouter(prefix=DESIGNS_PATH, tag="studies")
DigestPath = Annotated[str, Path(description="digest of a design", examples=["sha256:" + "0a1b2c3d" * 8])]


@router.post(
    "",
    summary="Register the design of a study",
    status_code=201,
    response_model=RegisteredDesign,
    responses={
        200: {"model": RegisteredDesign, "description": "The design was registered before"},
        201: located("design"),
        **documented(MalformedJson, UnsupportedMediaType, TooManyRequests),
    },
)
def register_design(body: BodyDep, service: SubmissionDep) -> Response:
    """Checks a study as `POST /studies` does, and stores its design, digest and the time; nothing is queued.

    A study posted later with the same design has digest and time in its results.
    """
    valid = checked_study(service, body)
    row, created = service.store.features.of(Studies).register(valid.spec, valid.templates)
    view = design_view(row)
    return stored(view, view.links.self, status=201 if created else 200)


@router.get("", summary="List registered designs, newest first")
def list_designs(store: StoreDep, limit: Limit = 50, cursor: Cursor | None = None) -> Page[DesignSummary]:
    """A page of the designs; `next_cursor` leads to the next page."""
    rows, following = store.features.of(Studies).designs(limit=limit, cursor=cursor)
    return Page(items=[DesignSummary(**_summary(row)) for row in rows], next_cursor=following)


@router.get(
    "/{digest}",
    summary="Look at a registered design",
    response_model=RegisteredDesign,
    responses=documented(NotFound, InvalidState),
)
def get_design(
    digest: DigestPath,
    store: StoreDep,
    format: Annotated[Literal["json", "canonical"], Query()] = "json",  # noqa: A002 (as of results)
) -> Response | RegisteredDesign:
    """The design, its time and its studies. As `canonical`: the bytes that the digest is of."""
    row = store.features.of(Studies).design(digest)
    if format == "canonical":
        return Response(canonical(row.design), media_type="application/json")
    return design_view(row)


@router.delete(
    "/{digest}",
    summary="Delete a registered design",
    status_code=204,
    responses=documented(NotFound, InvalidState),
)
def delete_design(digest: DigestPath, store: StoreDep) -> None:
    """Deletes a design that no study was posted from."""
    store.features.of(Studies).delete_design(digest)


def design_view(row: DesignRow) -> RegisteredDesign:
    """The design as users see it."""
    return RegisteredDesign(**_summary(row), earlier=row.earlier, spec=row.spec)


def _summary(row: DesignRow) -> dict[str, Any]:
    path = f"{DESIGNS_PATH}/{PREFIX}{row.sha256}"
    return {
        "digest": row.sha256,
        "name": row.labels["name"],
        "registered_at": iso(row.created_at),
        "arms": [arm["name"] for arm in row.design["arms"]],
        "seeds": row.design["seeds"],
        "studies": row.studies,
        "links": DesignLinks(self=path, canonical=f"{path}?format=canonical", studies=f"{path}/studies"),
    }
