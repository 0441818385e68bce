"""Routes of plots: of a job, as stored when it ended, and of several jobs together."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from fastapi import Path, Query, Request, Response

from assay.service.api.artifacts import UNREADABLE, read_artifact
from assay.service.api.deps import (
    CatalogDep,
    JobDep,
    SettingsDep,
    StoreDep,
    StrictRouter,
    Version,
    find_job,
    split_jobs,
    unchanged,
)
from assay.service.api.errors import documented
from assay.service.api.results import finished_results
from assay.service.api.views import JOBS_PATH
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import ErrorDetail, NoResults, NotFound, Unavailable
from assay.service.contract.problems import nearest
from assay.service.contract.results import Page, Results
from assay.service.plots.kinds import KINDS, LabelledResults, Vega, plots_of
from assay.service.plots.render import MEDIA_TYPES, RenderError, digest, render
from assay.service.plots.theme import themed
from assay.service.plots.wire import PlotFormat, PlotSummary
from assay.service.settings import Settings
from assay.service.store.rows import ArtifactRow, JobRow
from assay.service.store.tenants import TenantStore

logger = logging.getLogger(__name__)
router = StrictRouter(tag="results")
ROUTERS, BEFORE = (router,), "artifacts"
PREFIX = "/api/v1/plots"
MAX_JOBS = 10
MAX_STORED_BYTES = 16 * 1024**2
POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"  # Styles alone: nothing loads or runs.
VEGA_LITE = "application/vnd.vegalite.v6+json"
SVG = "image/svg+xml"
MAX_PICTURE_BYTES = 4 * 2**20
OF_TABLE = re.compile(r"plot-([0-9]{3,})-(\w+)\.svg")  # as `workers/jobs/merge.py` names the plot of a table

Scheme = Annotated[Literal["light", "dark"], Query(description="colours")]
Narrow = Annotated[bool, Query(description="drawn for a phone: panels and legend below each other")]
PlotName = Annotated[str, Path(description=", ".join(KINDS), examples=["curve"])]
FORMATS: tuple[PlotFormat, ...] = get_args(PlotFormat)
FormatName = Annotated[PlotFormat, Path(description=", ".join(FORMATS), examples=["svg"])]
Format = Annotated[PlotFormat, Query(description="`vl.json` is the Vega-Lite specification with its data")]
JobIds = Annotated[
    str,
    Query(
        description=f"1 to {MAX_JOBS} job ids, separated by commas",
        examples=["01jd3q0x5v8f7m2n9k4t6w1z0y,01jd3q0x5v8f7m2n9k4t6w1z0z"],
    ),
]
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The plot", "content": {media: {} for media in (*MEDIA_TYPES.values(), VEGA_LITE)}},
    304: {"description": "The plot has the ETag given in `If-None-Match`"},
}


@router.get(
    f"{JOBS_PATH}/{{job_id}}/plots",
    summary="List the plots of a job",
    responses=documented(NotFound, NoResults),
)
def list_plots(job: JobDep, store: StoreDep, catalog: CatalogDep, settings: SettingsDep) -> Page[PlotSummary]:
    """The plots that the results so far allow, each with its main numbers in words."""
    found = job_plots(store, catalog, settings, job)
    return Page(items=[plot_summary(job, kind, spec) for kind, spec in found.items()])


@router.get(
    f"{JOBS_PATH}/{{job_id}}/plots/{{kind}}",
    summary="A plot of a job",
    response_class=Response,
    responses={**ANSWERS, **documented(NotFound, NoResults)},
)
def get_plot(
    job: JobDep,
    kind: PlotName,
    request: Request,
    store: StoreDep,
    catalog: CatalogDep,
    settings: SettingsDep,
    format: Format = "svg",  # noqa: A002 (the contract's name)
    scheme: Scheme = "light",
    narrow: Narrow = False,
    v: Version = "",
) -> Response:
    """The plot as an image or as its specification; the same as long as the results are the same."""
    del v  # the dashboard's: a browser that has a picture would not load the picture of newer results
    check_kind(kind)
    spec = job_plots(store, catalog, settings, job).get(kind)
    if spec is None:
        raise NoResults(f"job {job.id} has no plot {kind!r}; it needs {KINDS[kind].needs}")
    name = f"assay-{job.id}-{kind}"
    return plot_answer(request, settings, spec, format, scheme, name, narrow=narrow)


@router.get(
    f"{PREFIX}/{{kind}}",
    summary="Several jobs in one plot",
    response_class=Response,
    responses={**ANSWERS, **documented(NotFound, NoResults)},
)
def plot_jobs(
    kind: PlotName,
    jobs: JobIds,
    request: Request,
    store: StoreDep,
    catalog: CatalogDep,
    settings: SettingsDep,
    format: Format = "svg",  # noqa: A002 (the contract's name)
    scheme: Scheme = "light",
    narrow: Narrow = False,
) -> Response:
    """The results of the jobs overlaid, or side by side, under the names of the jobs."""
    _, spec = jobs_and_plot(store, catalog, settings, kind, jobs)
    return plot_answer(request, settings, spec, format, scheme, f"assay-{kind}", narrow=narrow)


def jobs_and_plot(
    store: TenantStore, catalog: Catalog, settings: Settings, kind: str, jobs: str
) -> tuple[list[JobRow], Vega]:
    """The jobs of a list of ids, and their plot. NotFound: no such kind or job; NoResults: too few."""
    check_kind(kind)
    rows = [find_job(store, job_id) for job_id in split_jobs(jobs, 1, MAX_JOBS)]
    if len(rows) == 1:
        spec = job_plots(store, catalog, settings, rows[0]).get(kind)
    else:
        labelled = [
            LabelledResults(job.name or job.id, finished_results(store, job, catalog)) for job in rows
        ]
        spec = KINDS[kind](labelled)
    if spec is None:
        raise NoResults(f"these jobs have no plot {kind!r}; it needs {KINDS[kind].lacking(len(rows))}")
    return rows, spec


def job_plots(store: TenantStore, catalog: Catalog, settings: Settings, job: JobRow) -> dict[str, Vega]:
    """A job's plots by kind, from its results so far or stored at its end; NoResults before any result."""
    return plots_with(store, settings, job, finished_results(store, job, catalog))


def plots_with(store: TenantStore, settings: Settings, job: JobRow, results: Results) -> dict[str, Vega]:
    """The plots of a job by kind: made from its results so far, or stored when it ended."""
    made = plots_of([LabelledResults(job.name or job.id, results)])
    stored = {
        row.name.removeprefix("plot-").removesuffix(".vl.json"): row
        for row in store.artifacts.of(job.id)
        if row.name.startswith("plot-") and row.name.endswith(".vl.json") and row.expired_at is None
    }
    found = {}
    for kind in KINDS:
        spec = made.get(kind)  # Made from results, with the job's present name and the newest form.
        if spec is None and kind in stored and stored[kind].size <= MAX_STORED_BYTES:
            try:
                spec = json.loads(read_artifact(settings.file_store, stored[kind], MAX_STORED_BYTES))
            except (*UNREADABLE, ValueError) as error:
                logger.warning("job %s: the stored plot %s cannot be read: %s", job.id, kind, error)
        if isinstance(spec, dict):
            found[kind] = spec
    return found


def is_picture(row: ArtifactRow) -> bool:
    """Whether pages and reports show the file: an SVG file of at most 4 MiB that is there."""
    return row.media_type == SVG and row.size <= MAX_PICTURE_BYTES and row.expired_at is None


def table_plots(store: TenantStore, settings: Settings, job: JobRow) -> Iterator[tuple[str, bytes]]:
    """The plots that outcome tables drew of a job's evaluations: evaluation and SVG, in the job's order."""
    for row in sorted(store.artifacts.of(job.id), key=lambda row: row.name):
        named = OF_TABLE.fullmatch(row.name)
        if named is None or not is_picture(row):
            continue
        try:
            content = read_artifact(settings.file_store, row, MAX_PICTURE_BYTES)
        except UNREADABLE as error:
            logger.warning("job %s: the plot %s cannot be read: %s", job.id, row.name, error)
            continue
        yield f"{named[2]} (evaluation {int(named[1]) + 1})", content


def plot_summary(job: JobRow, kind: str, spec: Vega) -> PlotSummary:
    """A plot in a list."""
    return PlotSummary(
        kind=kind,
        title=KINDS[kind].title,
        description=str(spec.get("description", "")),
        href=f"{JOBS_PATH}/{job.id}/plots/{kind}",
    )


def check_kind(kind: str) -> None:
    """Raises NotFound, with the nearest name, for an unknown kind of plots."""
    if kind not in KINDS:
        near = nearest(kind, KINDS)
        hint = f"; did you mean {near!r}?" if near else ""
        message = f"there is no plot {kind[:100]!r}; allowed: {', '.join(KINDS)}{hint}"
        detail = ErrorDetail(
            loc=["path", "kind"], message=message, given=kind, allowed=list(KINDS), nearest=near
        )
        raise NotFound(message, [detail])


def plot_answer(
    request: Request,
    settings: Settings,
    spec: Vega,
    format: PlotFormat,  # noqa: A002 (the contract's name)
    scheme: Literal["light", "dark"],
    name: str,
    *,
    narrow: bool = False,
) -> Response:
    """The plot with its ETag; a plot that the client has already is not rendered."""
    assert format in FORMATS
    drawn = themed(spec, scheme, narrow=narrow)
    etag = f'"{digest(drawn, format)[:32]}"'
    if (same := unchanged(request, etag)) is not None:
        return same
    headers = {
        "ETag": etag,
        "Content-Security-Policy": POLICY,
        "Content-Disposition": f'inline; filename="{name}.{format}"',
    }
    if format == "vl.json":
        return Response(json.dumps(drawn), media_type=VEGA_LITE, headers=headers)
    try:
        content = render(spec, format, scheme=scheme, narrow=narrow, cache=settings.state / "plots")
    except (RenderError, OSError) as error:
        logger.warning("%s: %s", name, error)
        message = "the plot could not be rendered now; its specification is at format=vl.json"
        raise Unavailable(message) from None
    return Response(content, media_type=MEDIA_TYPES[format], headers=headers)
