"""Route of results, as JSON or as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from fastapi.responses import JSONResponse

from assay.service.api.deps import CatalogDep, JobDep, StoreDep, StrictRouter
from assay.service.api.errors import documented
from assay.service.api.views import JOBS_PATH, job_view, results_view
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import NoResults, NotFound
from assay.service.contract.results import EvaluationResult, Metric, Results, Warning
from assay.service.contract.states import TERMINAL, JobState
from assay.service.contract.threat import ThreatOf
from assay.service.metrics.compare.bracket import Keep, OutcomesOf, brackets, with_contradictions
from assay.service.reports.formats.csv_text import compact, inert
from assay.service.reports.headline import headline
from assay.service.reports.robustbench import robustbench_entries
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore
from assay.service.store.transactions.release import DIFFERENT
from assay.service.submission.warnings import spec_warnings

router = StrictRouter(prefix=JOBS_PATH, tag="results")

SETTLED_SECONDS = 300.0  # A worker may still merge an evaluation of a job that was canceled or has failed.
CSV_COLUMNS = (
    "evaluation", "params", "data", "protocol", "backend", "metric", "value", "n", "ci_low", "ci_high",
    "ci_method", "unit",
)  # fmt: skip
_CSV_EXAMPLE = (
    ",".join(CSV_COLUMNS) + "\r\n"
    'pgd,"{""epsilon"":0.00784,""steps"":20}","{""name"":""digits"",""params"":{}}",pixel,native,top1,0.8139,360,0.7703,0.8507,wilson,proportion\r\n'
)


@router.get(
    "/{job_id}/results",
    summary="Results of a job",
    response_model=Results,
    responses={
        200: {"content": {"text/csv": {"schema": {"type": "string"}, "example": _CSV_EXAMPLE}}},
        **documented(NotFound, NoResults),
    },
)
def get_results(
    job: JobDep,
    store: StoreDep,
    catalog: CatalogDep,
    format: Annotated[Literal["json", "csv", "robustbench"], Query()] = "json",  # noqa: A002 (the contract's name)
) -> Response | Results:
    """Every evaluation that has finished; `complete` is false while some are missing.

    As `robustbench`: `{"entries": [...]}`, each as in RobustBench's `model_info`.
    """
    results = finished_results(store, job, catalog)
    if format == "json":
        return results
    if format == "robustbench":
        view = job_view(store, job)
        return JSONResponse({"entries": robustbench_entries(view, results, catalog.threat_of)})
    return Response(
        to_csv(results),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="assay-{job.id}.csv"'},
    )


def finished_results(store: TenantStore, job: JobRow, catalog: Catalog) -> Results:
    """The results so far, with checks across them. NoResults: none yet, unless a training has succeeded."""
    if not _is_settled(store, job):
        return _read(store, job, catalog)

    def make() -> tuple[int, Results]:
        found = _read(store, job, catalog)
        parts = found.evaluations
        return 1 + sum(1 + len(part.metrics) + len(part.breakdown) for part in parts), found

    # Validating the stored numbers takes longer than the rest of a page.
    return store.results.cached(job.id, (job.attempt, job.state, job.finished_at, catalog.digest), make)


def _is_settled(store: TenantStore, job: JobRow) -> bool:
    if job.state is JobState.SUCCEEDED:
        return True
    ended = job.state in TERMINAL and job.finished_at is not None
    return ended and store.workers.clock() - (job.finished_at or 0.0) > SETTLED_SECONDS


def _read(store: TenantStore, job: JobRow, catalog: Catalog) -> Results:
    rows = store.results.of(job.id)
    if not rows and job.state != JobState.SUCCEEDED:
        reason = f": {job.error['message']}" if job.error else ""
        yet = "" if job.state in TERMINAL else " yet"
        raise NoResults(f"job {job.id} is {job.state.value} and has no results{yet}{reason}")
    found = results_view(job, rows, catalog.threat_of, catalog.radius_unit)
    places = dict(zip(sorted(rows), found.evaluations, strict=True))
    found.bracket, contradictions = brackets(places, *_outcomes(store, job.id, catalog))
    found.warnings = [*_doubts(job), *contradictions, *found.warnings, *spec_warnings(catalog, job.spec)]
    if found.provenance is not None:  # A worker does not know the design.
        found.provenance.design = None if job.study_id is None else store.results.design(job.id)
    found.headline = headline(found)
    return found


def _doubts(job: JobRow) -> Iterator[Warning]:
    if job.error is not None and job.error["type"] == DIFFERENT:
        message = "a shard had other numbers when it was computed again: use no number of the job, replan it"
        yield Warning(code="repeated_differently", message=message, evidence={"error": job.error["message"]})


def contradicted(
    store: TenantStore, job_id: str, evaluations: Mapping[int, EvaluationResult], catalog: Catalog
) -> dict[int, EvaluationResult]:
    """A job's evaluations with the warnings of contradictions in their balls, as in the job's results."""
    return with_contradictions(evaluations, *_outcomes(store, job_id, catalog))


def _outcomes(store: TenantStore, job_id: str, catalog: Catalog) -> tuple[OutcomesOf, ThreatOf, Keep]:
    return (
        lambda place: [row.columns for row in store.results.outcomes(job_id, place)],
        catalog.threat_of,
        lambda key, make: store.results.cached(job_id, key, make),
    )


def to_csv(results: Results) -> str:
    """CSV with a row per metric; of a breakdown with its label: `corruption/severity`, `stage` or a layer."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    for evaluation in results.evaluations:
        for name, metric in evaluation.metrics.items():
            writer.writerow(_cells(evaluation, name, metric))
        for part in evaluation.breakdown:
            for name, metric in part.metrics.items():
                writer.writerow(_cells(evaluation, f"{part.label}/{name}", metric))
    return text.getvalue()


def _cells(evaluation: EvaluationResult, name: str, metric: Metric) -> list[Any]:
    params, data = compact(evaluation.params), compact(evaluation.data)
    texts = (evaluation.name, params, data, evaluation.protocol, evaluation.backend, name)
    numbers = (metric.value, metric.n, metric.ci_low, metric.ci_high)
    return [*map(inert, texts), *numbers, inert(metric.ci_method), metric.unit or ""]
