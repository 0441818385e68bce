"""Route of the comparison of jobs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from fastapi import Query, Response

from assay.service.api.deps import CatalogDep, StoreDep, StrictRouter, find_job, split_jobs
from assay.service.api.errors import documented
from assay.service.api.outcome_tables import read_result, table_of
from assay.service.api.results import finished_results
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import ErrorDetail, InvalidSpec, NoResults, NotFound
from assay.service.contract.results import EvaluationResult
from assay.service.contract.stored_specs import user_spec
from assay.service.metrics.arithmetic import arithmetic_settings
from assay.service.metrics.compare.comparison import (
    Comparison,
    ComparisonRow,
    JobResults,
    compare,
    compared_weights,
)
from assay.service.metrics.paired import Rows
from assay.service.metrics.statistics.multiple_tests import Adjustment
from assay.service.reports.formats.csv_text import compact, inert
from assay.service.store.rows import JobRow, columns_of
from assay.service.store.tenants import TenantStore

router = StrictRouter(prefix="/api/v1/compare", tag="compare")

MAX_JOBS = 10
MAX_ROWS = 10_000_000  # Rows of all jobs: ten with twenty evaluations of 50,000 examples.
CSV_COLUMNS = (
    "evaluation", "params", "data", "protocol", "metric", "first_job", "first", "second_job", "second",
    "difference", "ci_low", "ci_high", "ci_method", "test", "p_value", "adjusted_p_value", "adjust", "n",
    "unit",
)  # fmt: skip
ComparedJobs = Annotated[
    str,
    Query(
        description=f"2 to {MAX_JOBS} job ids, separated by commas; the others are compared with the first",
        examples=["01jd3q0x5v8f7m2n9k4t6w1z0y,01jd3q0x5v8f7m2n9k4t6w1z0z"],
    ),
]


@router.get(
    "",
    summary="Compare the results of jobs",
    response_model=Comparison,
    responses={
        200: {"content": {"text/csv": {"schema": {"type": "string"}, "example": ",".join(CSV_COLUMNS)}}},
        **documented(NotFound, NoResults),
    },
)
def compare_jobs(
    jobs: ComparedJobs,
    store: StoreDep,
    catalog: CatalogDep,
    adjust: Annotated[
        Adjustment, Query(description="how p-values are adjusted for the number of all tests of the answer")
    ] = "holm",
    format: Annotated[Literal["json", "csv"], Query()] = "json",  # noqa: A002 (the contract's name)
) -> Response | Comparison:
    """The same metrics side by side, with paired intervals and tests on the common examples."""
    ids = split_jobs(jobs, 2, MAX_JOBS)
    rows = [find_job(store, job_id) for job_id in ids]
    check_size(rows, jobs)
    comparison = compare([measured_side(store, catalog, job_id) for job_id in ids], adjust)
    comparison = comparison.model_copy(update={"note": compared_weights([row.spec for row in rows])})
    if format == "json":
        return comparison
    return Response(to_csv(comparison), media_type="text/csv; charset=utf-8")


def to_csv(comparison: Comparison) -> str:
    """CSV with one row per metric and pair of jobs."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([CSV_COLUMNS, *(_cells(row, comparison.adjust) for row in comparison.rows)])
    return text.getvalue()


def _cells(row: ComparisonRow, adjust: Adjustment) -> list[Any]:
    params, data = compact(row.params), compact(row.data)
    first, second = row.values
    tested: list[Any] = [""] * 5
    if (test := row.test) is not None:
        tested = [test.name, test.p_value, test.adjusted_p_value, adjust, test.n]
    return [
        *map(inert, (row.evaluation, params, data, row.protocol, row.metric)),
        *(first.job, first.value, second.job, second.value),
        *(row.difference, row.ci_low, row.ci_high, row.ci_method or ""),
        *tested,
        row.unit or "",
    ]


def check_size(rows: list[JobRow], given: str) -> None:
    """Refuse a comparison that would take minutes: its work grows with the rows of all jobs together."""
    count = row_count(rows)
    if count > MAX_ROWS:
        message = f"these jobs measured {count} examples together; allowed: {MAX_ROWS}, with fewer jobs"
        detail = ErrorDetail(
            loc=["query", "jobs"], message=message, given=given, allowed=f"at most {MAX_ROWS}"
        )
        raise InvalidSpec(message, [detail])


def row_count(rows: list[JobRow]) -> int:
    """The examples of all evaluations of all jobs."""
    return sum(one["n"] for row in rows if row.plan is not None for one in row.plan["evaluations"])


def measured_side(store: TenantStore, catalog: Catalog, job_id: str) -> JobResults:
    """A job as input of a comparison. NotFound: no such job; NoResults: no evaluation has finished."""
    row = find_job(store, job_id)
    results = finished_results(store, row, catalog)
    evaluations = {position: read_result(result) for position, result in store.results.of(row.id).items()}

    def columns(position: int) -> Rows:
        return columns_of(store.results.outcomes(row.id, position))

    tables = {position: table_of(result) for position, result in evaluations.items()}
    known = {position: table for position, table in tables.items() if table is not None}
    planned = row.plan or row.provenance  # A training job has no plan; its provenance has the sizes instead.
    hashes = {} if planned is None else planned.get("data_sha256", {})
    code: dict[str, Any] = {**row.provenance["code"]} if row.provenance else {}
    if not code and row.plan is not None:
        code = {**row.plan.get("identity", {})}
    about = (
        row.spec["seed"],
        code,
        results.error,
        results.warnings,
        arithmetic_of(row, evaluations.values()),
        row.name,
    )
    return JobResults(row.id, results.complete, evaluations, columns, known, hashes, *about)


def arithmetic_of(row: JobRow, evaluations: Iterable[EvaluationResult]) -> dict[str, str]:
    """The settings that changed the numbers of a job's rows."""
    return arithmetic_settings(user_spec(row.spec)["execution"], row.provenance or {}, evaluations)
