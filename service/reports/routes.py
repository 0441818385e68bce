"""Routes of reports and tables of several jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response

from assay.service.api.compare import MAX_JOBS, arithmetic_of, check_size, measured_side, row_count
from assay.service.api.compare import MAX_ROWS as MAX_COMPARED_ROWS
from assay.service.api.deps import CatalogDep, SettingsDep, StoreDep, StrictRouter, find_job
from assay.service.api.errors import documented
from assay.service.api.results import finished_results
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import ErrorDetail, InvalidSpec, NoResults, NotFound
from assay.service.metrics.arithmetic import arithmetic_text
from assay.service.metrics.compare.comparison import Comparison, JobResults, compare, compared_weights
from assay.service.metrics.statistics.multiple_tests import Adjustment
from assay.service.plots.kinds import LabelledResults, plots_of
from assay.service.plots.routes import job_plots, table_plots
from assay.service.reports import page
from assay.service.reports.comparisons import significantly_best
from assay.service.reports.figures import Figure, figures, picture
from assay.service.reports.formats.csv_text import tidy_csv
from assay.service.reports.tables import pivot
from assay.service.reports.tidy import ReportedJob, counted_numbers, tidy_rows
from assay.service.settings import Settings
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

router = StrictRouter(prefix="/api/v1", tag="reports")
ROUTERS, BEFORE = (router,), "catalog"

MAX_TABLE_JOBS = 200
MAX_TABLE_PLOTS_BYTES = 16 * 2**20  # of the plots of outcome tables in a report
Adjust = Annotated[Adjustment, Query(description="how p-values are adjusted for the number of all tests")]
MEDIA_TYPES = {
    "html": "text/html",
    "md": "text/markdown",
    "tex": "application/x-tex",
    "latex": "application/x-tex",
    "csv": "text/csv",
}
# Also of a file that a browser opens from the service: it loads nothing and runs nothing.
HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"}


@dataclass(frozen=True)
class Choice:
    """The jobs that a call asks for."""

    jobs: Annotated[
        str | None, Query(description="job ids, separated by commas", examples=["01jd3q0x5v8f7m2n9k4t6w1z0y"])
    ] = None
    tag: Annotated[
        str | None, Query(min_length=1, description="in place of ids: all jobs with this tag and results")
    ] = None


ChoiceDep = Annotated[Choice, Depends()]


@router.get(
    "/report",
    summary="Report on jobs: a page, Markdown, LaTeX, or one row a number",
    response_class=Response,
    responses={
        200: {
            "content": {kind: {"schema": {"type": "string"}} for kind in sorted(set(MEDIA_TYPES.values()))}
        },
        **documented(NotFound, NoResults),
    },
)
def get_report(
    choice: ChoiceDep,
    store: StoreDep,
    catalog: CatalogDep,
    settings: SettingsDep,
    format: Annotated[Literal["html", "md", "tex", "csv"], Query()] = "html",  # noqa: A002 (the contract's name)
    adjust: Adjust = "holm",
) -> Response:
    """One to ten jobs; as CSV up to 200."""
    rows, jobs = _jobs(store, catalog, choice, MAX_TABLE_JOBS if format == "csv" else MAX_JOBS)
    numbers = tidy_rows(jobs)
    if format == "csv":
        return _file(tidy_csv(numbers), format, "report")
    sides = _sides(store, catalog, rows)
    comparison = _comparison(rows, sides, adjust)
    best, notes = _best(rows, sides, comparison)
    drawn, missing = _figures(store, catalog, settings, rows, jobs) if format == "html" else ([], [])
    report = page.JobReport(
        jobs=jobs,
        table=pivot(
            numbers,
            by=("attack", "name" if len(jobs) > 1 else "model"),
            best=best,
            counted=counted_numbers(jobs),
        ),
        comparison=comparison,
        figures=drawn,
        notes=missing,
    )
    # The other formats have a list of all warnings.
    doubts = _doubts(jobs) if format == "tex" else []
    report.table.notes.extend([*doubts, *_arithmetic(rows, jobs), *notes])
    write = {"html": page.html, "md": page.markdown, "tex": page.latex}[format]
    return _file(write(report), format, "report")


@router.get(
    "/table",
    summary="Table of the numbers of jobs",
    response_class=Response,
    responses={
        200: {
            "content": {kind: {"schema": {"type": "string"}} for kind in sorted(set(MEDIA_TYPES.values()))}
        },
        **documented(NotFound, NoResults),
    },
)
def get_table(
    choice: ChoiceDep,
    store: StoreDep,
    catalog: CatalogDep,
    format: Annotated[Literal["md", "tex", "latex", "csv", "html"], Query()] = "md",  # noqa: A002 (the contract's name)
    rows: Annotated[str, Query(description="field of the rows, or a parameter")] = "attack",
    columns: Annotated[str, Query(description="field of the columns, or a parameter")] = "model",
    metric: Annotated[str | None, Query(description="the metric; default: the first of each row")] = None,
    adjust: Adjust = "holm",
) -> Response:
    """Up to 200 jobs; for two to ten jobs, the significantly best numbers are bold."""
    found, jobs = _jobs(store, catalog, choice, MAX_TABLE_JOBS)
    numbers = tidy_rows(jobs)
    few = len(found) <= MAX_JOBS and format != "csv"
    sides = _sides(store, catalog, found) if few else []
    best, notes = _best(found, sides, _comparison(found, sides, adjust))
    table = pivot(numbers, by=(rows, columns), metric=metric, best=best)
    table.notes.extend([*_doubts(jobs), *_arithmetic(found, jobs), *notes])
    return _file(page.table_text(table, format), format, "table")


def _doubts(jobs: list[ReportedJob]) -> list[str]:
    """The warnings for which no number must be used, and the codes of the cautions."""
    told = page.warnings_of(jobs)
    grave = [f"{severity} {text}" for severity, text in told if severity == "invalid"]
    cautions = [text.partition(" ")[0].rstrip(":") for severity, text in told if severity == "caution"]
    return [*grave, *([f"caution: {', '.join(dict.fromkeys(cautions))}"] if cautions else [])]


def _arithmetic(rows: list[JobRow], jobs: list[ReportedJob]) -> list[str]:
    """What numbers were computed in, by job, unless all are plain float32."""
    found: dict[str, list[str]] = {}
    for row, job in zip(rows, jobs, strict=True):
        text = arithmetic_text(arithmetic_of(row, job.results.evaluations))
        found.setdefault(text, []).append(job.label)
    if {*found} == {"float32"}:
        return []
    parts = [text if len(found) == 1 else f"{text}: {', '.join(names)}" for text, names in found.items()]
    return [f"computed in {'; '.join(parts)}"]


def _jobs(
    store: TenantStore, catalog: Catalog, choice: Choice, limit: int
) -> tuple[list[JobRow], list[ReportedJob]]:
    """The jobs asked for: all jobs with the ids, or the jobs with the tag that have results."""
    rows, jobs = [], []
    by_tag = choice.tag is not None and choice.jobs is None
    for row in _tagged(store, choice.tag or "", limit) if by_tag else _named(store, choice, limit):
        try:
            results = finished_results(store, row, catalog)
        except NoResults:
            if not by_tag:
                raise
            continue
        rows.append(row)
        jobs.append(
            ReportedJob(row.id, row.spec.get("name") or "", row.spec, results, _trained_by(store, row))
        )
    if not jobs:
        raise NoResults(f"no job with the tag {choice.tag!r} has results")
    if len(jobs) > limit:
        raise _too_many("tag", choice.tag, limit)
    return rows, jobs


def _trained_by(store: TenantStore, row: JobRow) -> dict[str, Any] | None:
    """The training job of a job's weights, as far as the caller sees it."""
    if (job_id := (row.spec["model"].get("weights") or {}).get("job")) is None:
        return None
    found: dict[str, Any] = {"job": job_id, "page": f"/jobs/{job_id}"}
    with suppress(NotFound):
        found |= store.jobs.get(job_id).spec
    return found


def _named(store: TenantStore, choice: Choice, limit: int) -> Iterator[JobRow]:
    ids = [job_id.strip() for job_id in (choice.jobs or "").split(",")]
    if choice.jobs is None or choice.tag is not None or len(set(ids)) != len(ids) or not all(ids):
        allowed = "different job ids, separated by commas, or a tag"
        detail = ErrorDetail(
            loc=["query", "jobs"], message=f"give {allowed}", given=choice.jobs, allowed=allowed
        )
        raise InvalidSpec(detail.message, [detail])
    if len(ids) > limit:
        raise _too_many("jobs", f"{len(ids)} jobs", limit)
    return (find_job(store, job_id) for job_id in ids)


def _tagged(store: TenantStore, tag: str, limit: int) -> list[JobRow]:
    """Oldest first."""
    found, cursor = store.jobs.page(tag=tag, limit=MAX_TABLE_JOBS)
    if cursor is not None:
        raise _too_many("tag", tag, limit)
    return found[::-1]


def _too_many(field: str, given: str | None, limit: int) -> InvalidSpec:
    table = f"; a table takes {MAX_TABLE_JOBS}" if limit < MAX_TABLE_JOBS else ""
    message = f"too many jobs; allowed: {limit}{table}"
    detail = ErrorDetail(loc=["query", field], message=message, given=given, allowed=f"at most {limit} jobs")
    return InvalidSpec(message, [detail])


def _figures(
    store: TenantStore, catalog: Catalog, settings: Settings, rows: list[JobRow], jobs: list[ReportedJob]
) -> tuple[list[Figure], list[str]]:
    if len(rows) == 1:
        specs = job_plots(store, catalog, settings, rows[0])
    else:
        specs = plots_of([LabelledResults(job.label, job.results) for job in jobs])
    drawn, missing = figures(specs, settings.state / "plots")
    room = MAX_TABLE_PLOTS_BYTES
    for row, job in zip(rows, jobs, strict=True):
        for name, svg in table_plots(store, settings, row):
            title = f"{job.label}: {name}" if len(rows) > 1 else name
            if (room := room - len(svg)) < 0:
                return drawn, [
                    *missing,
                    f"the plot {title} and those after it would make the report too large",
                ]
            drawn.append(picture(title, svg))
    return drawn, missing


def _sides(store: TenantStore, catalog: Catalog, rows: list[JobRow]) -> list[JobResults]:
    if len(rows) < 2:
        return []
    check_size(rows, ",".join(row.id for row in rows))
    return [measured_side(store, catalog, row.id) for row in rows]


def _comparison(rows: list[JobRow], sides: list[JobResults], adjust: Adjustment) -> Comparison | None:
    if not sides:
        return None
    note = compared_weights([row.spec for row in rows])
    return compare(sides, adjust).model_copy(update={"note": note})


def _best(
    rows: list[JobRow], sides: list[JobResults], comparison: Comparison | None
) -> tuple[set[tuple[str, str]], list[str]]:
    """The significantly best numbers of two or more jobs, and what bold means here.

    The comparison has the pairs with the first job; the others are compared here.
    """
    if comparison is None:
        return set(), []
    if row_count(rows) * (len(sides) - 1) > MAX_COMPARED_ROWS:
        return set(), ["no number is bold: there are too many examples to compare all pairs of jobs"]
    adjust = comparison.adjust
    others = [row for place in range(1, len(sides) - 1) for row in compare(sides[place:], adjust).rows]
    pairs = [*comparison.rows, *others]
    best = significantly_best(pairs, [side.job for side in sides], adjust)
    tests = sum(row.test is not None for row in pairs)
    return best, [
        f"bold: better than all others, each adjusted p at most 0.05 ({adjust.replace('_', '-')}, {tests}"
        " paired tests of all pairs); each job has one training: this compares weights, not methods"
    ]


def _file(text: str, format: str, name: str) -> Response:  # noqa: A002 (the contract's name)
    ending = "tex" if format == "latex" else format
    shown = {"Content-Disposition": f'attachment; filename="assay-{name}.{ending}"'}
    return Response(text, media_type=f"{MEDIA_TYPES[format]}; charset=utf-8", headers={**shown, **HEADERS})
