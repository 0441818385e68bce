"""Conversion of table rows to the store's values."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, Table, select

from assay.service.contract.errors import NotFound
from assay.service.contract.states import JobState, ShardState
from assay.service.contract.summaries import JobSummary
from assay.service.store.rows import JobRow, ShardRow
from assay.service.store.tables import jobs


def read_job(connection: Connection, job_id: str, tenant: str | None = None) -> JobRow:
    """Reads a job, with a tenant only a job of that tenant; NotFound: there is no such job."""
    row = row_of(connection, jobs, job_id, tenant)
    if row is None:
        raise unknown_job(job_id)
    return job_row(row)


def row_of(connection: Connection, table: Table, row_id: str, tenant: str | None) -> Row[Any] | None:
    """A row of a table with tenants by its id, with a tenant only a row of that tenant."""
    statement = select(table).where(table.c.id == row_id)
    if tenant is not None:
        statement = statement.where(table.c.tenant == tenant)
    return connection.execute(statement).one_or_none()


def unknown_job(job_id: str) -> NotFound:
    """The error for an unknown job id."""
    return NotFound(f"there is no job {job_id[:100]}")


def job_row(row: Row[Any]) -> JobRow:
    """A row of `jobs` as a value."""
    columns = dict(row._mapping)
    own = ("last_event", "progress_event_at", "paused_at", "seed", "clean", "worst", "worst_at", "examples")
    for name in own:
        del columns[name]
    spec = columns["spec"]
    columns |= {"state": JobState(row.state), "name": spec["name"], "tags": list(spec["tags"])}
    if row.summary is not None:
        columns["summary"] = JobSummary.model_validate(row.summary)
    return JobRow(**columns)


def summary_columns(summary: JobSummary) -> dict[str, Any]:
    """The columns of a job's summary."""
    clean, worst = summary.clean, summary.worst
    counted = worst or clean
    return {
        "clean": None if clean is None else clean.value,
        "worst": None if worst is None else worst.value,
        "worst_at": None if worst is None else worst.held_radius,
        "examples": None if counted is None else counted.n,
        "summary": summary.model_dump(mode="json"),
    }


def shard_row(row: Row[Any]) -> ShardRow:
    """A row of `shards` as a value."""
    columns = dict(row._mapping)
    queueing = ("precedence", "tenant", "identity", "requirements", "queued_at")
    unshown = ("claimed_at", "pool", "progressed_at", "failed_as", "saved_step", "saved_at", "all_failures")
    for name in (*queueing, *unshown, "lost", "lost_day"):
        del columns[name]
    return ShardRow(**columns | {"state": ShardState(row.state)})
