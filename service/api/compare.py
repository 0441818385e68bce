"""Route of the comparison of jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from assay.service.api.deps import CatalogDep, StoreDep, find_job, only
from assay.service.api.errors import documented
from assay.service.api.outcome_tables import read_result, table_of
from assay.service.api.results import finished_results
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import ErrorDetail, InvalidSpec, NoResults, NotFound
from assay.service.metrics.comparison import Comparison, JobResults, compare
from assay.service.metrics.paired import Rows
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

router = APIRouter(prefix="/api/v1/compare", tags=["compare"])

MAX_JOBS = 10
# Of all evaluations of all jobs: ten jobs with twenty evaluations of 50,000 examples.
MAX_ROWS = 10_000_000
JobIds = Annotated[
    str,
    Query(
        description=f"2 to {MAX_JOBS} job ids, separated by commas; the others are compared with the first",
        examples=["01jd3q0x5v8f7m2n9k4t6w1z0y,01jd3q0x5v8f7m2n9k4t6w1z0z"],
    ),
]


@router.get(
    "",
    operation_id="compare_jobs",
    summary="Compare the results of jobs",
    responses=documented(NotFound, NoResults),
    dependencies=[only("jobs")],
)
def compare_jobs(jobs: JobIds, store: StoreDep, catalog: CatalogDep) -> Comparison:
    """The same metrics side by side, with paired intervals and tests on the common examples."""
    ids = _split(jobs)
    _check_size([find_job(store, job_id) for job_id in ids], jobs)
    return compare([_side(store, catalog, job_id) for job_id in ids])


def _check_size(rows: list[JobRow], given: str) -> None:
    """Refuse a comparison that would take minutes: its work grows with the rows of all jobs together."""
    count = sum(one["n"] for row in rows if row.plan is not None for one in row.plan["evaluations"])
    if count > MAX_ROWS:
        message = f"these jobs measured {count} examples together; allowed: {MAX_ROWS}, with fewer jobs"
        detail = ErrorDetail(
            loc=["query", "jobs"], message=message, given=given, allowed=f"at most {MAX_ROWS}"
        )
        raise InvalidSpec(message, [detail])


def _split(jobs: str) -> list[str]:
    ids = [job_id.strip() for job_id in jobs.split(",")]
    if not 2 <= len(ids) <= MAX_JOBS or len(set(ids)) != len(ids):
        message = f"give 2 to {MAX_JOBS} different job ids, separated by commas"
        raise InvalidSpec(message, [ErrorDetail(loc=["query", "jobs"], message=message, given=jobs)])
    return ids


def _side(store: TenantStore, catalog: Catalog, job_id: str) -> JobResults:
    row = find_job(store, job_id)
    results = finished_results(store, row, catalog)
    evaluations = {position: read_result(result) for position, result in store.results.of(row.id).items()}

    def columns(position: int) -> Rows:
        return _joined(store, row.id, position)

    tables = {position: table_of(result) for position, result in evaluations.items()}
    known = {position: table for position, table in tables.items() if table is not None}
    # A training job has no plan; its provenance has the sizes instead.
    planned = row.plan or row.provenance
    hashes = {} if planned is None else planned.get("data_sha256", {})
    return JobResults(row.id, results.complete, evaluations, columns, known, hashes, row.spec["seed"])


def _joined(store: TenantStore, job_id: str, position: int) -> Rows:
    """The columns of all shards of an evaluation, one after another."""
    joined: dict[str, list[Any]] = {}
    for outcome in store.results.outcomes(job_id, position):
        for name, values in outcome.columns.items():
            joined.setdefault(name, []).extend(values)
    return joined
