"""Choice of a worker's next shard: the job of its warm evaluator first, then priority, age, shard number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, select, update

from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.rows import Claim
from assay.service.store.tables import jobs, shards
from assay.service.store.transactions.deadline import first_deadline, resume
from assay.service.store.transactions.transitions import (
    CLAIMABLE,
    lock_job,
    transition_job,
    transition_shards,
)


def candidate(connection: Connection, devices: Sequence[str], count: int, warm_job: str | None) -> str | None:
    """The job that should get this worker, read without locks; None without work."""
    claimable = [str(state) for state in CLAIMABLE]
    statement = (
        select(shards.c.job_id)
        .join(jobs, jobs.c.id == shards.c.job_id)
        .where(_queued(devices, count), jobs.c.state.in_(claimable))
        .order_by(shards.c.precedence, shards.c.job_id)
        .limit(1)
    )
    job_id: str | None = None
    if warm_job is not None:
        job_id = connection.execute(statement.where(shards.c.job_id == warm_job)).scalar()
    return job_id or connection.execute(statement).scalar()


def take(
    connection: Connection,
    job_id: str,
    worker: str,
    devices: Sequence[str],
    count: int,
    lease_seconds: float,
) -> Claim | None:
    """Claims the job's first queued shard; None when another worker was faster or the job has ended.

    The job's row lock and not SKIP LOCKED on shards: claiming also changes the job, and locking a shard
    before its job would deadlock with a cancel, which has to lock them in reverse order. Claimers of other
    jobs do not wait.
    """
    job = lock_job(connection, job_id)
    if job is None or JobState(job.state) not in CLAIMABLE:
        return None
    # The precedence is the job's own: named so that the claiming index leads straight to its shards.
    of_job = (shards.c.job_id == job_id) & (shards.c.precedence == -job.priority)
    statement = (
        select(shards)
        .where(of_job, _queued(devices, count))
        .order_by(shards.c.evaluation, shards.c.number)
        .limit(1)
    )
    shard = connection.execute(statement).one_or_none()
    if shard is None:
        return None
    fence = shard.fence + 1
    taken = {"owner": worker, "lease_until": now() + lease_seconds, "fence": fence}
    if not transition_shards(
        connection, shards.c.id == shard.id, {ShardState.QUEUED}, ShardState.RUNNING, **taken
    ):
        return None
    start_job(connection, job, running=shard.kind == "evaluate")
    if shard.kind != "plan" and job.paced_at is None:
        pace = {"paced_at": now(), "paced_from": jobs.c.cost_done}
        connection.execute(update(jobs).where(jobs.c.id == job.id).values(pace))
    return _claim(job, shard, worker, fence)


def retake(connection: Connection, claim: Claim) -> bool:
    """Gives a shard back to its last claim, if it was taken away and not claimed since.

    For a worker that was cut off and has meanwhile finished: its fence is still the newest, so its work would
    only be repeated.

    Returns:
        Whether the claim holds again.
    """
    job = lock_job(connection, claim.job_id)
    if job is None or JobState(job.state) not in CLAIMABLE:
        return False
    untouched = (shards.c.id == claim.shard_id) & (shards.c.fence == claim.fence)
    if not transition_shards(
        connection, untouched, {ShardState.QUEUED}, ShardState.RUNNING, owner=claim.worker
    ):
        return False
    start_job(connection, job, running=claim.kind == "evaluate")
    return True


def start_job(connection: Connection, job: Row[Any], *, running: bool) -> None:
    """Moves a queued job to `starting`, or on to `running`; its clock starts with its first claim."""
    times: dict[str, Any] = {}
    if job.started_at is None:
        times = {"started_at": now(), "deadline": first_deadline(job)}
    resume(connection, job)
    transition_job(connection, job.id, {JobState.QUEUED}, JobState.STARTING, **times)
    if running:
        transition_job(connection, job.id, {JobState.STARTING}, JobState.RUNNING)


def _queued(devices: Sequence[str], count: int) -> ColumnElement[bool]:
    """Condition for shards that a worker with so many devices of these classes can run."""
    queued = shards.c.state == str(ShardState.QUEUED)
    return queued & shards.c.device.in_(["auto", *devices]) & (shards.c.devices <= count)


def _claim(job: Row[Any], shard: Row[Any], worker: str, fence: int) -> Claim:
    return Claim(
        shard_id=shard.id,
        job_id=job.id,
        kind=shard.kind,
        attempt=job.attempt,
        fence=fence,
        worker=worker,
        spec=job.spec,
        plan=job.plan,
        evaluation=shard.evaluation,
        number=shard.number,
        start=shard.start,
        stop=shard.stop,
        failures=shard.failures,
        losses=shard.losses,
    )
