"""Pages of registered designs, and the forms that register, run and delete a design."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.deps import Cursor, StoreDep, StrictRoute, SubmissionDep
from assay.service.contract.errors import AssayError, InvalidState
from assay.service.contract.strict_json import parse_json
from assay.service.dashboard.forms import FormDep, see
from assay.service.dashboard.frame import render
from assay.service.dashboard.snippets import json_body, url_option
from assay.service.dashboard.submit import MAX_SHOWN_PROBLEMS
from assay.service.store.tenants import TenantStore
from assay.service.studies import routes as studies
from assay.service.studies.designs import routes as api
from assay.service.studies.posting import checked_study, planned_study
from assay.service.studies.store import Studies

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

PER_PAGE = 25
MAX_PLANNED = 200  # evaluations in all arms of a design that its page plans
_EXAMPLES = Path(__file__).parents[1] / "request_examples.json"
_EXAMPLE = json.loads(_EXAMPLES.read_text(encoding="utf-8"))["studies"]["study"]["value"]


@router.get("/designs")
def list_designs(request: Request, store: StoreDep, cursor: Cursor | None = None) -> Response:
    """Designs, newest first, with the studies that were posted from them."""
    return _page(request, store, cursor=cursor)


@router.get("/designs/{digest}")
def show_design(request: Request, digest: str, service: SubmissionDep, known: bool = False) -> Response:
    """A design: its digest and time, its jobs and their cost, its studies, and its JSON."""
    row = service.store.features.of(Studies).design(digest)
    planned, refused = None, ""
    try:
        if len(row.design["arms"]) * len(row.design["evaluations"]) > MAX_PLANNED:
            raise InvalidState("too many evaluations for a page; `POST /api/v1/studies?dry_run=true` says it")
        planned = planned_study(service, checked_study(service, row.spec))
    except AssayError as error:  # Weights or data are gone since
        refused = error.message
    values = {
        "title": row.labels["name"].strip() or f"Design {row.sha256[:12]}",
        "section": "/studies",
        "design": api.design_view(row),
        "known": known,
        "planned": planned,
        "refused": refused,
        "command": f"assay studies run{url_option(str(request.base_url))} sha256:{row.sha256}",
        "json": json_body(row.design),
    }
    return render(request, "design.html", values)


@router.post("/designs")
def register(request: Request, form: FormDep, service: SubmissionDep) -> Response:
    """Registers a design and shows it, or shows the form again with every fault."""
    text = form.get("spec", "")
    try:
        body = parse_json(text.encode("utf-8", "surrogatepass"), service.settings.max_json_depth)
        answer = api.register_design(body, service)
    except AssayError as error:
        if error.status >= 500:
            raise
        return _page(request, service.store, text=text, error=error)
    known = "?known=true" if answer.status_code == HTTPStatus.OK else ""
    return see(f"/designs/{answer.headers['location'].rpartition('/')[2]}{known}")


@router.post("/designs/{digest}/studies")
def run_design(form: FormDep, digest: str, service: SubmissionDep) -> Response:
    """Queues the jobs of a design, and shows the study."""
    del form
    answer = studies.submit_design(digest, service)
    return see(f"/studies/{answer.headers['location'].rpartition('/')[2]}")


@router.post("/designs/{digest}/delete")
def delete_design(form: FormDep, digest: str, store: StoreDep) -> Response:
    """Deletes a design, and shows the others."""
    del form
    api.delete_design(digest, store)
    return see("/designs")


def _page(
    request: Request,
    store: TenantStore,
    *,
    cursor: str | None = None,
    text: str | None = None,
    error: AssayError | None = None,
) -> Response:
    rows, following = store.features.of(Studies).designs(limit=PER_PAGE, cursor=cursor)
    details = error.details[:MAX_SHOWN_PROBLEMS] if error is not None else []
    values = {
        "title": "Registered designs",
        "section": "/studies",
        "designs": [api.design_view(row) for row in rows],
        "following": f"/designs?cursor={following}" if following else None,
        "text": json.dumps(_EXAMPLE, indent=2) if text is None else text,
        "error": error,
        "details": [(detail, "") for detail in details],
    }
    return render(request, "designs.html", values, status=200 if error is None else error.status)
