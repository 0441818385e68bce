"""Ending a job, and the effect on jobs that wait for it. All in the caller's transaction."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.tables import RUNNING, jobs, shards
from assay.service.store.transactions.charge import charge, keep_tags
from assay.service.store.transactions.dependencies import dependencies_met, waiting_dependents
from assay.service.store.transactions.event_log import one_line
from assay.service.store.transactions.standings import running_shards
from assay.service.store.transactions.transitions import lock_job, transition_job, transition_shards

ENDED_AS = {JobState.FAILED: "failed", JobState.CANCELED: "was canceled", JobState.TIMED_OUT: "timed out"}

RUNNING_OF_JOB = select(shards.c.id).where(shards.c.job_id == bindparam("job"), RUNNING).limit(1)


def problem(error_type: str, message: str) -> dict[str, str]:
    """The error of a job."""
    return {"type": error_type, "message": message}


def end_job(
    connection: Connection,
    job_id: str,
    from_states: Collection[JobState],
    to: JobState,
    *,
    error: dict[str, str] | None = None,
    **values: Any,
) -> bool:
    """Moves a job to a terminal state, with all consequences."""
    # Its queued shards are canceled. Waiting jobs are released (`succeeded`, unless they wait for others too)
    # or fail with `dependency_failed`, and so do their dependents. Workers of running shards learn of it at
    # their next renewal.
    message = one_line(error["message"]) if error else ""
    ending = {"finished_at": now(), "error": error, "message": message, **values}
    if not transition_job(connection, job_id, from_states, to, **ending):
        return False
    cancel_queued_shards(connection, job_id)
    if to is JobState.SUCCEEDED:
        _release_dependents(connection, job_id)
    else:
        _fail_dependents(connection, job_id, ENDED_AS[to])
    return True


def cancel_queued_shards(connection: Connection, job_id: str) -> None:
    """Takes a job's unclaimed shards out of the queue."""
    transition_shards(connection, shards.c.job_id == job_id, {ShardState.QUEUED}, ShardState.CANCELED)


def cancel_job(connection: Connection, job_id: str) -> None:
    """Cancels an unfinished job: at once when no worker has a shard of it, else it is `canceling`."""
    if not end_job(connection, job_id, {JobState.WAITING, JobState.QUEUED}, JobState.CANCELED):
        working = {JobState.STARTING, JobState.RUNNING}
        transition_job(connection, job_id, working, JobState.CANCELING, message="")
        cancel_queued_shards(connection, job_id)
        cancel_when_idle(connection, job_id)


def cancel_when_idle(connection: Connection, job_id: str) -> bool:
    """Ends a job in `canceling` once no worker has a shard of it."""
    if connection.execute(RUNNING_OF_JOB, {"job": job_id}).first() is not None:
        return False
    return end_job(connection, job_id, {JobState.CANCELING}, JobState.CANCELED)


def _release_dependents(connection: Connection, job_id: str) -> None:
    for dependent in waiting_dependents(connection, job_id):
        # Before reading its other dependencies: of two that succeed at once, the later sees the other.
        lock_job(connection, dependent)
        if dependencies_met(connection, dependent):
            transition_job(connection, dependent, {JobState.WAITING}, JobState.QUEUED, message="")


def _fail_dependents(connection: Connection, job_id: str, how: str) -> None:
    # A heap: a chain of fine-tunings may be longer than Python's stack. Oldest first: the lock order by ids.
    first = _described(connection, job_id, how)
    due = [(dependent, *first) for dependent in waiting_dependents(connection, job_id)]
    while due:
        dependent, cause, how = heapq.heappop(due)
        message = one_line(f"{cause}, whose weights this job needs, {how}")
        ending = {"finished_at": now(), "error": problem("dependency_failed", message), "message": message}
        if transition_job(connection, dependent, {JobState.WAITING}, JobState.FAILED, **ending):
            cancel_queued_shards(connection, dependent)
            for further in waiting_dependents(connection, dependent):
                heapq.heappush(due, (further, f"job {dependent}", ENDED_AS[JobState.FAILED]))


def _described(connection: Connection, job_id: str, how: str) -> tuple[str, str]:
    job = connection.execute(select(jobs.c.kind, jobs.c.spec, jobs.c.error).where(jobs.c.id == job_id)).one()
    if job.kind != "check":
        return f"job {job_id}", how
    return f"checkpoint {job.spec['name']}", f"was rejected: {(job.error or {}).get('message', how)}"


def delete_job(connection: Connection, job: Row[Any]) -> None:
    """Deletes a job with everything below it, and charges its tenant for what workers still held."""
    # Workers may still be stopping shards of a failed job. Only the audit is written after this.
    stopped = connection.execute(running_shards(job.id)).all()
    keep_tags(connection, job.id, running=bool(stopped))
    connection.execute(jobs.delete().where(jobs.c.id == job.id))
    charge(connection, job, stopped)
