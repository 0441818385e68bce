"""Interactive plots: a page that draws a plot of a job or of several with Vega, and its scripts.

The scripts come from the package that renders plots on the server. Vega evaluates the expressions of a
specification by an interpreter, so that the content security policy needs no exception for it.
"""

from __future__ import annotations

import logging

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.deps import CatalogDep, SettingsDep, StoreDep, StrictRoute, Version
from assay.service.contract.errors import Unavailable
from assay.service.contract.results import Results
from assay.service.dashboard.frame import HEADERS, compressed, render
from assay.service.lru_cache import LruCache
from assay.service.plots import routes as api
from assay.service.plots.kinds import KINDS
from assay.service.plots.render import RenderError, bundle
from assay.service.plots.routes import plot_summary, plots_with
from assay.service.plots.sizes import Size, usual_size
from assay.service.plots.wire import PlotSummary
from assay.service.settings import Settings
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

logger = logging.getLogger(__name__)
router = APIRouter(route_class=StrictRoute, include_in_schema=False)
NAVIGATION = None


@router.get("/plots/vega.js")
def vega(request: Request, settings: SettingsDep, v: Version = "") -> Response:
    """The scripts, made once for each version of the package; 0.9 MB, a third of it as sent."""
    del v
    try:
        path, _ = bundle(settings.state / "plots")
        content = path.read_bytes()
    except (RenderError, OSError) as error:
        logger.warning("the scripts of interactive plots: %s", error)
        raise Unavailable("the scripts of interactive plots could not be made now; load again") from None
    body, encoding = compressed(request, content)
    kept = {"Cache-Control": "private, max-age=86400", "Vary": "Accept-Encoding"}
    return Response(body, media_type="text/javascript", headers={**HEADERS, **kept, **encoding})


@router.get("/plots/{kind}")
def interactive(
    request: Request,
    kind: api.PlotName,
    jobs: api.JobIds,
    store: StoreDep,
    catalog: CatalogDep,
    settings: SettingsDep,
) -> Response:
    """A plot with tooltips; without JavaScript the picture."""
    rows, spec = api.jobs_and_plot(store, catalog, settings, kind, jobs)
    ids = ",".join(row.id for row in rows)
    values = {
        "title": KINDS[kind].title,
        "section": "/compare" if len(rows) > 1 else "/jobs",
        "description": str(spec.get("description", "")),
        "files": {form: f"/api/v1/plots/{kind}?jobs={ids}&format={form}&" for form in api.FORMATS},
        "rows": [(f"/jobs/{row.id}", row.spec["name"].strip() or row.id) for row in rows],
        "back": f"/compare?jobs={ids}" if len(rows) > 1 else f"/jobs/{ids}",
    }
    return render(request, "plot.html", values)


MAX_KEPT = 256
OF_SEVERAL = frozenset({"tradeoff"})  # Kinds of plots in which a single job is a single point.
# What the plots of a job depend on: its id, attempt, end, name, and the numbers of its results and files.
PictureKey = tuple[str, int, float | None, str, int, int]

_cache: LruCache[PictureKey, list[tuple[PlotSummary, Size]]] = LruCache(MAX_KEPT)


def plots_of_job(
    store: TenantStore, settings: Settings, job: JobRow, results: Results, files: int
) -> list[tuple[PlotSummary, Size]]:
    """The plots of a job with their usual sizes; `results` so far, `files` their number."""
    key = (job.id, job.attempt, job.finished_at, job.name, len(results.evaluations), files)

    def make() -> list[tuple[PlotSummary, Size]]:
        specs = plots_with(store, settings, job, results)
        return [
            (plot_summary(job, kind, spec), usual_size(spec))
            for kind, spec in specs.items()
            if kind not in OF_SEVERAL
        ]

    return _cache.get_or_make(key, make)
