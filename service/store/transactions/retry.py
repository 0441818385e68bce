"""A job's next attempt: finished shards stay unless it is planned again, as the plan may be of other code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from assay.service.contract.errors import InvalidState
from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.contract.records import Replan
from assay.service.contract.states import RETRYABLE, JobState, ShardState
from assay.service.contract.times import iso
from assay.service.store.artifacts import weights_expired
from assay.service.store.clock import now
from assay.service.store.fleet.quotas import check_submission
from assay.service.store.row_mapping import unknown_job
from assay.service.store.tables import artifacts, jobs, results, shards
from assay.service.store.transactions.charge import charge, void
from assay.service.store.transactions.claim import start_job
from assay.service.store.transactions.dependencies import lock_required, required_jobs
from assay.service.store.transactions.end_job import cancel_job
from assay.service.store.transactions.release import DIFFERENT, release
from assay.service.store.transactions.repetition import draw
from assay.service.store.transactions.standings import running_shards, tenant_limits
from assay.service.store.transactions.submit import add_first_shard
from assay.service.store.transactions.transitions import is_left, lock_job, transition_job, transition_shards
from assay.service.submission.dependencies import dependencies_of

CLEARED: dict[str, Any] = dict.fromkeys(
    ("started_at", "finished_at", "deadline", "paused_at", "error", "paced_at")
)


UNPLANNED: dict[str, Any] = {
    **dict.fromkeys(("plan", "progress_total", "cost_total", "pace", "repeated")),
    **dict.fromkeys(("progress_done", "cost_done", "paced_from"), 0),
}


def retry_job(
    connection: Connection, job_id: str, limits: Limits = UNLIMITED, *, replan: bool = False
) -> None:
    """Puts a job that failed, was canceled or timed out back to work, in a writing transaction.

    `replan` gives up its plan and outcomes, also of a running or queued job without a shard at a worker.
    Raises TooManyRequests: a limit of its tenant; NotFound; InvalidState: another state, no plan to give up,
    or required weights or their job were deleted.
    """
    needed = lock_required(connection, required_jobs(connection, job_id))  # The lock order of `transitions`.
    job = lock_job(connection, job_id)
    if job is None:
        raise unknown_job(job_id)
    if replan:
        job = _stopped(connection, job)
    if JobState(job.state) not in RETRYABLE:
        again = "planned again" if replan else "retried"
        waiting = ", and those that wait for other workers," if replan else ""
        allowed = f"only failed, canceled and timed out jobs{waiting} can be {again}"
        raise InvalidState(f"job {job_id} is {job.state}: {allowed}")
    if (job.error or {}).get("type") == DIFFERENT and not replan:
        raise InvalidState(f"a shard of job {job_id} has two different results: plan the job again (replan)")
    check_submission(connection, job.tenant, tenant_limits(connection, job.tenant, limits))
    forgotten: dict[str, Any] = _forget_plan(connection, job) if replan else {}
    stopped = _queue_shards(connection, job_id) if not replan else []
    left = is_left(connection, job_id) or (not replan and draw(connection, job))
    missing = _missing(connection, job_id, needed) if left else []
    to = JobState.WAITING if missing else JobState.QUEUED
    named = [f"{_named(connection, job_id, source.id)}, which is {_state_text(source)}" for source in missing]
    message = f"waiting for {' and '.join(named)}" if named else ""
    changes = {"attempt": job.attempt + 1, "message": message, **CLEARED, **forgotten}
    transition_job(connection, job_id, RETRYABLE, to, **changes)
    if not left:
        queued = lock_job(connection, job_id)  # Only the merge is missing; no claim will start the job.
        assert queued is not None
        start_job(connection, queued, running=True)
    charge(connection, job, stopped)


def _stopped(connection: Connection, job: Row[Any]) -> Row[Any]:
    """The job, canceled if it waited for a fit worker. InvalidState: no plan, or workers are measuring."""
    if job.kind != "evaluate" or job.plan is None:
        raise InvalidState(_no_plan(job))
    if job.state not in {JobState.QUEUED, JobState.RUNNING}:  # queued: an attempt after the first
        return job
    if connection.execute(running_shards(job.id)).first() is not None:
        raise InvalidState(f"workers are measuring job {job.id}: cancel it before it is planned again")
    cancel_job(connection, job.id)
    canceled = lock_job(connection, job.id)
    assert canceled is not None
    return canceled


def _no_plan(job: Row[Any]) -> str:
    if job.kind != "evaluate":
        return f"job {job.id} is no evaluation: only these have a plan; retry it if it has failed"
    if JobState(job.state) in RETRYABLE:
        return f"job {job.id} was never planned: retry it, and it will be"
    return f"job {job.id} has no plan yet: it gets one as soon as a worker takes it"


def _forget_plan(connection: Connection, job: Row[Any]) -> dict[str, Any]:
    """Deletes what a plan measured and queues the plan shard; returns the job's other changes."""
    held = connection.execute(running_shards(job.id)).all()
    # With their outcomes. A worker that still has a shard finds its claim void: fences go on.
    for table in (shards, results, artifacts):
        connection.execute(delete(table).where(table.c.job_id == job.id))
    add_first_shard(connection, job.id, "plan", job.spec, job.tenant, attempt=job.attempt + 1)
    replan: Replan = {
        "at": iso(connection.execute(select(now())).scalar_one()),
        "attempt": job.attempt + 1,
        "planned_by": job.plan.get("identity"),
    }
    void(connection, job.id)
    charge(connection, job, held)
    return {**UNPLANNED, "replans": [*(job.replans or []), replan]}


def _missing(connection: Connection, job_id: str, needed: Mapping[str, Row[Any] | None]) -> list[Row[Any]]:
    """Required jobs that have not succeeded; InvalidState: a job or its weights were deleted."""
    missing = []
    for source, row in needed.items():
        if row is None:
            raise InvalidState(
                f"{_named(connection, job_id, source)}, whose weights job {job_id} needs, has been deleted"
            )
        if weights_expired(connection, source):
            raise InvalidState(f"the weights of job {source}, which job {job_id} needs, have expired")
        if row.state != JobState.SUCCEEDED:
            missing.append(row)
    return missing


def _named(connection: Connection, job_id: str, source: str) -> str:
    """A required job's name; a checkpoint's own."""
    spec = connection.execute(select(jobs.c.spec).where(jobs.c.id == job_id)).scalar_one()
    others = dependencies_of(spec)
    own = (spec["model"].get("weights") or {}).get("checkpoint")
    uploads = dict.fromkeys(name for name in (own, *(one.checkpoint for one in others)) if name is not None)
    if not uploads or source in {one.job for one in others}:
        return f"job {source}"
    return f"checkpoint {' or '.join(uploads)}"


def _state_text(source: Row[Any]) -> str:
    if source.kind != "check":
        return str(source.state)
    return "rejected" if source.state in RETRYABLE else "being checked"


def _queue_shards(connection: Connection, job_id: str) -> Sequence[Row[Any]]:
    """Queues all unfinished shards; returns those that were running."""
    of_job = shards.c.job_id == job_id
    running = connection.execute(running_shards(job_id)).all()
    for shard in running:
        # Its worker is stopping work of the previous attempt, and will find the shard lost.
        release(connection, shard, ShardState.QUEUED)
    stopped = {ShardState.FAILED, ShardState.CANCELED}
    transition_shards(connection, of_job, stopped, ShardState.QUEUED)
    left = of_job & (shards.c.state == str(ShardState.QUEUED))
    none = dict.fromkeys(("failures", "all_failures", "losses", "device_faults", "saved_step"), 0)
    fresh = {**none, "failed_as": None, "queued_at": now()}
    connection.execute(shards.update().where(left).values(fresh))
    return running
