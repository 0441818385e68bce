"""Page of all jobs, and the forms of the verbs on a job."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api import jobs as api
from assay.service.api.deps import CatalogDep, Cursor, JobDep, StoreDep, StrictRoute
from assay.service.api.views import JobViews
from assay.service.contract.states import JobState
from assay.service.contract.verbs import VERBS, Verb
from assay.service.dashboard.choices import Filter, check_choice
from assay.service.dashboard.forms import FormDep, see
from assay.service.dashboard.frame import render

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

PER_PAGE = 50
KINDS = ("train", "evaluate")


@router.get("/jobs")
def list_jobs(
    request: Request,
    store: StoreDep,
    catalog: CatalogDep,
    state: Filter = "",
    kind: Filter = "",
    model: Filter = "",
    tag: Filter = "",
    search: Filter = "",
    cursor: Cursor | None = None,
) -> Response:
    """Jobs that match the filters, newest first."""
    check_choice("state", state, [one.value for one in JobState])
    check_choice("kind", kind, KINDS)
    filters = {"state": state, "kind": kind, "model": model, "tag": tag, "search": search.strip()}
    chosen = {name: value for name, value in filters.items() if value}
    rows, following = store.jobs.page(**chosen, limit=PER_PAGE, cursor=cursor)
    jobs = JobViews(store, rows).all()
    values = {
        "title": "Jobs",
        "section": "/jobs",
        "jobs": jobs,
        "open": [job.id for job in jobs if job.finished_at is None],
        "filters": filters,
        "states": [one.value for one in JobState],
        "kinds": KINDS,
        "models": sorted({entry.name for entry in catalog.list("model")}),
        "following": f"/jobs?{urlencode({**chosen, 'cursor': following})}" if following else None,
    }
    return render(request, "jobs.html", values)


def _form(verb: Verb) -> None:
    @router.post(f"/jobs/{{job_id}}/{verb.name}", name=verb.name)
    def act(job: JobDep, form: FormDep, acting: api.ActingDep) -> Response:
        del form
        acting.act(verb, job)
        return see("/jobs" if verb.deletes else f"/jobs/{job.id}")


for _verb in VERBS:
    _form(_verb)
