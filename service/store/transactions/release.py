"""Releasing a shard without a result: requeue, cancel or fail it; always under the job's lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, exists, select, update

from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.database import Database
from assay.service.store.tables import RUNNING, jobs, shards
from assay.service.store.transactions.charge import charge
from assay.service.store.transactions.deadline import pause
from assay.service.store.transactions.end_job import cancel_when_idle, end_job, problem
from assay.service.store.transactions.event_log import record_message
from assay.service.store.transactions.progress import set_done
from assay.service.store.transactions.transitions import (
    CLAIMABLE,
    complete,
    lock_job,
    transition_job,
    transition_shards,
)

DIFFERENT = "invalid"  # The error of a job with a repeated shard of other bits.


def release(connection: Connection, shard: Row[Any], to: ShardState, **values: Any) -> None:
    """Moves a running shard to a state without an owner; an evaluate shard's work is lost."""
    if shard.kind == "evaluate":
        set_done(connection, shard, 0)
    free = {"owner": None, "lease_until": None, "queued_at": now()}
    transition_shards(connection, shards.c.id == shard.id, {ShardState.RUNNING}, to, **free, **values)


def requeue(connection: Connection, job: Row[Any], shard: Row[Any], **values: Any) -> None:
    """Queues a running shard again, or cancels it when its job no longer runs."""
    if JobState(job.state) not in CLAIMABLE:
        release(connection, shard, ShardState.CANCELED, **values)
        cancel_when_idle(connection, job.id)
        return
    release(connection, shard, ShardState.QUEUED, **values)
    if shard.kind == "repeat":
        record_message(connection, job.id, "a shard that is to be computed again waits for a worker")
    pause(connection, job)
    running = (shards.c.job_id == job.id) & RUNNING  # Without a worker, as in a restart, no speed is seen.
    idle = (jobs.c.id == job.id) & ~exists().where(running)
    connection.execute(update(jobs).where(idle).values(paced_at=None))
    if job.state == JobState.STARTING:
        transition_job(connection, job.id, {JobState.STARTING}, JobState.QUEUED)  # It has one shard.


def fail(
    connection: Connection, job: Row[Any], shard: Row[Any], error_type: str, message: str, **values: Any
) -> None:
    """Fails a running shard and its job; a repetition is given up, as its job is measured."""
    if shard.kind == "repeat" and error_type != DIFFERENT:
        not_compared(connection, job, f"they failed with {error_type}", 1)
        record_message(connection, job.id, f"a shard was not computed again, {error_type}: {message}"[:500])
        complete(connection, shard)
        return
    release(connection, shard, ShardState.FAILED, **values)
    error = problem(error_type, message)
    end_job(connection, job.id, {JobState(job.state)}, JobState.FAILED, error=error)


def not_compared(connection: Connection, job: Row[Any], reason: str, count: int) -> None:
    """Notes repetitions of a job that were not compared bit for bit."""
    before: dict[str, int] = job.repeated["not_compared"]
    noted = {**job.repeated, "not_compared": {**before, reason: before.get(reason, 0) + count}}
    connection.execute(update(jobs).where(jobs.c.id == job.id).values(repeated=noted))


class ShardFailure(NamedTuple):
    """Why a shard has failed; a repeated `fingerprint` tells that it recurs."""

    error_type: str
    message: str
    retry: bool
    fingerprint: str | None


def count_failure(
    connection: Connection, job: Row[Any], shard: Row[Any], found: ShardFailure, cap: int, cap_in_all: int
) -> None:
    """Queues a shard again after a failure, or fails it with its job."""
    failures, ever, why = shard.failures + 1, shard.all_failures + 1, ""
    if found.fingerprint is not None and found.fingerprint == shard.failed_as:
        why = " (twice in succession, so not tried again)"
    elif ever >= cap_in_all:
        why = f" (failure {ever} of this attempt, so not tried again)"
    noted = {"failures": failures, "failed_as": found.fingerprint, "all_failures": ever}
    again = found.retry and not why and failures < cap
    if JobState(job.state) in CLAIMABLE and not again:
        message = f"{found.message}{why}" if found.retry else found.message
        fail(connection, job, shard, found.error_type, message, **noted)
    else:
        requeue(connection, job, shard, **noted)


def expire(
    database: Database, cap: int, dead_owners: Sequence[str], *, leases: bool = True, at: float | None = None
) -> int:
    """Takes back every lost shard, returns their number; a transaction per job: never two jobs' locks."""
    if not leases and not dead_owners:
        return 0
    lost = _lost(dead_owners, leases, at)
    with database.reading() as connection:
        job_ids = connection.execute(select(shards.c.job_id).where(lost).distinct()).scalars().all()
    return sum(_expire_job(database, job_id, lost, cap) for job_id in sorted(job_ids))


def _lost(dead_owners: Sequence[str], leases: bool, at: float | None) -> ColumnElement[bool]:
    gone: ColumnElement[bool] = shards.c.owner.in_(list(dead_owners))
    over = shards.c.lease_until < (now() if at is None else at)
    return RUNNING & ((gone | over) if leases else gone)


def _expire_job(database: Database, job_id: str, lost: ColumnElement[bool], cap: int) -> int:
    with database.writing() as connection:
        locked = lock_job(connection, job_id)
        if locked is None:
            return 0
        # A renewal takes no job lock; an earlier renewal must win.
        statement = select(shards).where(shards.c.job_id == job_id, lost).order_by(shards.c.id)
        rows = connection.execute(statement.with_for_update(key_share=True)).all()
        for shard in rows:
            job = lock_job(connection, job_id)  # The previous shard may have ended the job.
            assert job is not None
            _lose(connection, job, shard, cap)
        if rows:
            charge(connection, locked, rows)
    return len(rows)


def _lose(connection: Connection, job: Row[Any], shard: Row[Any], cap: int) -> None:
    losses = shard.losses + 1
    if JobState(job.state) in CLAIMABLE and losses >= cap:
        message = f"shard {shard.id} was lost {losses} times: its worker died or could not reach the database"
        fail(connection, job, shard, "lost_too_often", message, losses=losses)
    else:
        requeue(connection, job, shard, losses=losses)
