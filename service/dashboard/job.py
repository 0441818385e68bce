"""Page of a job: its state, results, plots, examples, provenance, files, and how it was made."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from assay.service.api.caller import CallerDep
from assay.service.api.deps import CatalogDep, JobDep, LiveDep, SettingsDep, StoreDep, StrictRoute
from assay.service.api.results import finished_results
from assay.service.api.views import artifact_view, job_view, up_to_date
from assay.service.contract.errors import NoResults
from assay.service.contract.states import TERMINAL
from assay.service.dashboard.choices import refused
from assay.service.dashboard.frame import render
from assay.service.dashboard.job_facts import (
    log_lines,
    missing_evaluations,
    newest_result,
    offered_verbs,
    remedy_of,
    sources_of,
)
from assay.service.dashboard.result_rows import shown_results
from assay.service.dashboard.snippets import json_body, snippets
from assay.service.galleries.files import gallery_files
from assay.service.galleries.pages import preview_of
from assay.service.metrics.arithmetic import device_facts
from assay.service.metrics.compare.bracket import bracket_line
from assay.service.plots.pages import plots_of_job
from assay.service.plots.pictures import own_pictures
from assay.service.plots.sizes import picture_size, plot_sizes
from assay.service.plots.wire import PlotFormat

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

MAX_FILES = 100
MAX_PICTURES = 24
FIRST = ("curve", "security_curve", "training")  # Plots at the top: the first that the job has


@router.get("/jobs/{job_id}")
def show_job(
    job: JobDep,
    request: Request,
    store: StoreDep,
    live: LiveDep,
    catalog: CatalogDep,
    settings: SettingsDep,
    caller: CallerDep,
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> Response:
    """Everything about a job on one page; long results in several."""
    # Before the results: a result that comes between the two is then loaded again, and none is missed.
    newest = newest_result(store, job.id)
    view = job_view(store, up_to_date(store, live, job))
    try:
        results = finished_results(store, job, catalog)
    except NoResults:
        results = None
    shown = None if results is None else shown_results(results)
    pages = 1 if shown is None else len(shown.pages) - 1
    if page > pages:
        raise refused("page", f"there is no page {page}", page, f"1 to {pages}")
    known = None if results is None else results.provenance
    device, prepared = device_facts({} if known is None else known.device)
    files = store.artifacts.of(job.id)
    galleries = gallery_files(files)
    found = [] if results is None else plots_of_job(store, settings, job, results, len(files))
    plots = [plot for plot, _ in found]
    first = next((plot for kind in FIRST for plot in plots if plot.kind == kind), None)
    values = {
        "title": view.name.strip() or view.id,
        "section": "/jobs",
        "job": view,
        "ended": view.state in TERMINAL,
        "seconds": job.finished_at - job.started_at if job.started_at and job.finished_at else None,
        "verbs": offered_verbs(store, job),
        "remedy": remedy_of(view.error),
        "sources": sources_of(store, job),
        "results": results,
        "shown": shown,
        "newest_result": newest,
        "brackets": [] if results is None else [bracket_line(point) for point in results.bracket],
        "device": device,
        "prepared": prepared,
        "page": page,
        "pages": pages,
        "missing": missing_evaluations(job, results),
        "first": first,
        "plots": [plot for plot in plots if plot is not first],
        "formats": get_args(PlotFormat),
        "pictures": [(row, picture_size(settings, row)) for row in own_pictures(files)[:MAX_PICTURES]],
        "sizes": plot_sizes(settings, {plot.kind: size for plot, size in found}, files),
        "galleries": galleries,
        "preview": preview_of(settings, galleries, None if shown is None else shown.strongest),
        "log": log_lines(store, job),
        "files": [artifact_view(job.id, row) for row in files[:MAX_FILES]],
        "left_out": max(0, len(files) - MAX_FILES),
        "spec": json_body(job.spec),
        "snippets": snippets(job.spec, str(request.base_url), with_key=caller.key is not None),
    }
    return render(request, "job.html", values)
