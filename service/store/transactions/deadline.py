"""Deadlines of jobs.

A user's `timeout_seconds` runs from the first claim of an attempt. Without one a job gets a default deadline,
from its plan or the pace of its training, which stands still while no worker has a shard of the job: a long
queue must not end a job that others keep waiting.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, exists, update

from assay.service.store.clock import now
from assay.service.store.tables import RUNNING, jobs, shards
from assay.service.store.transactions.transitions import CLAIMABLE


def first_deadline(job: Row[Any]) -> ColumnElement[float] | None:
    """The deadline of an attempt whose first shard is being claimed; None without one."""
    timeout = job.spec.get("timeout_seconds")
    if timeout is None:
        timeout = (job.plan or {}).get("deadline_seconds")
    return None if timeout is None else now() + timeout


def lower_deadline(connection: Connection, job: Row[Any], seconds: float) -> None:
    """Sets a default deadline in so many seconds, unless there is an earlier one or a user's timeout."""
    if job.spec.get("timeout_seconds") is None:
        later = jobs.c.deadline.is_(None) | (jobs.c.deadline > now() + seconds)
        statement = update(jobs).where(jobs.c.id == job.id, later).values(deadline=now() + seconds)
        connection.execute(statement)


def pause(connection: Connection, job: Row[Any]) -> None:
    """Stops the clock of a default deadline, if no worker has a shard of the job any more."""
    if job.spec.get("timeout_seconds") is not None:
        return
    running = (shards.c.job_id == job.id) & RUNNING
    idle = (jobs.c.id == job.id) & jobs.c.paused_at.is_(None) & ~exists().where(running)
    connection.execute(update(jobs).where(idle).values(paused_at=now()))


def resume(connection: Connection, job: Row[Any]) -> None:
    """Lets the clock run on, as a worker has a shard of the job again."""
    if job.paused_at is not None:
        later = jobs.c.deadline + (now() - job.paused_at)
        connection.execute(update(jobs).where(jobs.c.id == job.id).values(deadline=later, paused_at=None))


def overdue(at: float | None = None) -> ColumnElement[bool]:
    """Condition for jobs past their deadline at a moment, by default at present."""
    working = jobs.c.state.in_([str(state) for state in CLAIMABLE])
    late = jobs.c.deadline < (now() if at is None else at)
    return working & late & jobs.c.paused_at.is_(None)


def overdue_message(job: Row[Any]) -> str:
    """Why a job past its deadline ends."""
    timeout = job.spec.get("timeout_seconds")
    if timeout is not None:
        return f"the job ran longer than its timeout of {timeout} second{'s' * (timeout != 1)}"
    return (
        f"the job ran longer than its default deadline of {job.deadline - job.started_at:.0f} seconds, ten"
        " times its estimate; a retry starts anew, and timeout_seconds in the spec sets another deadline"
    )
