"""Route of the audit, for keys with the scope `admin`: a page of entries, or all of them as JSON lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated

from fastapi import Depends, Query, Request, Response
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, StreamingResponse

from assay.service.api.authentication import AUDIT_PATH
from assay.service.api.caller import Caller, CallerDep, administrator
from assay.service.api.deps import Cursor, Limit, StrictRouter, SystemStoreDep
from assay.service.api.errors import documented
from assay.service.contract.audit import JSON_LINES, Action, AuditEntry
from assay.service.contract.keys import TENANT_PATTERN
from assay.service.contract.problems import Problems
from assay.service.contract.results import Page
from assay.service.store.audit import AuditFilter
from assay.service.store.store import Store

DEFAULT_LIMIT = 50


router = StrictRouter(prefix=AUDIT_PATH, tag="audit")
ROUTERS, BEFORE = (router,), "health"

When = Annotated[AwareDatetime | None, Query(description="ISO 8601 with a time zone; entries from then on")]
Until = Annotated[AwareDatetime | None, Query(description="ISO 8601 with a time zone; entries before then")]
Tenant = Annotated[str | None, Query(pattern=TENANT_PATTERN, description="of the key that acted")]
KeyId = Annotated[str | None, Query(pattern=r"^[0-9a-z]{8}$", description="id of the key that acted")]


@router.get(
    "",
    summary="Who did what",
    response_model=Page[AuditEntry],
    responses={
        200: {
            "description": "A page, newest first; with `Accept: application/x-ndjson` all entries that match,"
            " oldest first, one JSON object a line",
            "content": {JSON_LINES: {"schema": {"$ref": "#/components/schemas/AuditEntry"}}},
        },
        **documented(),
    },
    dependencies=[Depends(administrator)],
)
def list_audit(
    request: Request,
    caller: CallerDep,
    store: SystemStoreDep,
    after: When = None,
    before: Until = None,
    tenant: Tenant = None,
    action: Action | None = None,
    key: KeyId = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = None,
) -> Response:
    """Jobs, uploads, keys and logins of all tenants: what was done, and what was refused."""
    wanted = AuditFilter(
        after=None if after is None else after.timestamp(),
        before=None if before is None else before.timestamp(),
        tenant=tenant,
        action=action,
        key=key,
    )
    headers = {"Cache-Control": "no-store", "Vary": "Accept"}
    if JSON_LINES in request.headers.get("accept", "").lower():
        _unpaged(request)
        chunks = store.audit.chunks(wanted, until=store.audit.newest())
        return StreamingResponse(_lines(chunks, caller, store), media_type=JSON_LINES, headers=headers)
    entries, following = store.audit.page(wanted, limit=limit, cursor=cursor)
    page = Page[AuditEntry](items=entries, next_cursor=following)
    return JSONResponse(page.model_dump(mode="json"), headers=headers)


async def _lines(
    chunks: Iterator[Sequence[AuditEntry]], caller: Caller, store: Store
) -> AsyncIterator[bytes]:
    """The entries as lines, a query and a check of the key for each 500; memory for those alone."""
    # An error, or a key that was revoked meanwhile, breaks the connection: a cut export must not look whole.
    while (found := await run_in_threadpool(next, chunks, None)) is not None:
        if not await run_in_threadpool(caller.still_allowed, store):
            raise RuntimeError("the key was revoked during the export")
        yield b"".join(entry.model_dump_json().encode() + b"\n" for entry in found)


def _unpaged(request: Request) -> None:
    problems = Problems()
    for name in ("limit", "cursor"):
        if name in request.query_params:
            problems.add(
                ("query", name),
                f"is for pages; {JSON_LINES} has all entries",
                given=request.query_params[name],
                allowed="after, before, tenant, action, key",
            )
    problems.raise_if_any()
