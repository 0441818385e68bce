"""Deadlines of jobs.

A user's `timeout_seconds` runs from an attempt's first claim. Otherwise a job gets a default deadline, from
its plan or its training's pace, which stands still while no worker has a shard of the job: a long queue must
not end a job.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, case, exists, select, update

from assay.service.store.clock import now
from assay.service.store.tables import RUNNING, jobs, shards
from assay.service.store.transactions.transitions import CLAIMABLE, OPEN

PAUSED = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.paused_at.is_(None))
    .where(~exists().where(shards.c.job_id == bindparam("job"), RUNNING))
    .values(paused_at=now())
)
RESUMED = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(deadline=jobs.c.deadline + (now() - jobs.c.paused_at), paused_at=None)
)


def first_deadline(job: Row[Any]) -> ColumnElement[float] | None:
    """The deadline of an attempt at its first claim; None without a deadline."""
    timeout = job.spec.get("timeout_seconds")
    if timeout is None:
        timeout = (job.plan or {}).get("deadline_seconds")
    return None if timeout is None else now() + timeout


def lower_deadline(connection: Connection, job: Row[Any], seconds: float) -> None:
    """Sets a default deadline in so many seconds, unless an earlier one or a user's timeout exists."""
    if job.spec.get("timeout_seconds") is None:
        later = jobs.c.deadline.is_(None) | (jobs.c.deadline > now() + seconds)
        statement = update(jobs).where(jobs.c.id == job.id, later).values(deadline=now() + seconds)
        connection.execute(statement)


def pause(connection: Connection, job: Row[Any]) -> None:
    """Stops the clock of a default deadline, if no worker has a shard of the job."""
    if job.spec.get("timeout_seconds") is not None:
        return
    connection.execute(PAUSED, {"job": job.id})


def resume(connection: Connection, job: Row[Any]) -> None:
    """Lets the clock run on."""
    if job.paused_at is not None:
        connection.execute(RESUMED, {"job": job.id})


def overdue(at: float | None = None) -> ColumnElement[bool]:
    """Condition for jobs past their deadline at a moment, by default now."""
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
        " times its estimate; a retry has as long again; timeout_seconds in the spec sets another deadline"
    )


def put_right(connection: Connection, jump: float, lease_seconds: float, begun: float) -> None:
    """Puts leases, deadlines and times of claims right after a jump (`Workers.reset_clock`)."""
    # Times before the jump are older than `begun`, or in the future. A start is never moved: after a jump
    # back and forth it is within the length of the jump again, but not since `begun`.
    values = {
        "lease_until": now() + lease_seconds,
        "progressed_at": now(),
        **{name: _moved(shards.c[name], jump, begun) for name in ("claimed_at", "saved_at")},
    }
    right: ColumnElement[bool] = jobs.c.started_at.between(begun, now())
    if jump < 0:
        # Their shards tell which deadlines are of a plan since the jump; none may pass by the jump.
        measuring = select(shards.c.id).where(shards.c.job_id == jobs.c.id, shards.c.kind == "evaluate")
        planned_before = exists(measuring.where(~shards.c.queued_at.between(begun, now())))
        right |= (exists(measuring) & ~planned_before) | (jobs.c.deadline + jump < now())
    late = {
        "deadline": case((right, jobs.c.deadline), else_=jobs.c.deadline + jump),
        "paused_at": case(
            (jobs.c.paused_at.between(begun, now()), jobs.c.paused_at), else_=jobs.c.paused_at + jump
        ),
    }
    started = jobs.c.state.in_([str(state) for state in OPEN]) & jobs.c.started_at.is_not(None)
    in_order = select(jobs.c.id).where(started).order_by(jobs.c.id)
    # Jobs before shards, in the order of ids, as all who lock several.
    connection.execute(in_order.with_for_update(key_share=True)).all()
    connection.execute(update(shards).where(RUNNING).values(values))
    connection.execute(update(jobs).where(started).values(late))


def _moved(time: ColumnElement[float], jump: float, begun: float) -> ColumnElement[float]:
    """A time of a claim by a clock that jumped after `begun`; never in the future."""
    moved = time + jump
    return case((time.between(begun, now()), time), (moved > now(), now()), else_=moved)
