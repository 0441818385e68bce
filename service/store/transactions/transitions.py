"""State transitions: compare and set, along the transition tables; the only way to change a state.

Lock order, which keeps PostgreSQL free of deadlocks: a job before its shards, a job before the jobs
that depend on it. A transaction that changes a shard's state first takes its job's row lock (on SQLite the
whole database is locked), so what it reads of the other shards stays true until it commits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, bindparam, select, update

from assay.service.contract.states import JOB_TRANSITIONS, SHARD_TRANSITIONS, TERMINAL, JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.rows import Claim
from assay.service.store.tables import LEFT, jobs, shards
from assay.service.store.transactions.event_log import record_state_event

# States in which a job's shards may be claimed.
CLAIMABLE = frozenset({JobState.QUEUED, JobState.STARTING, JobState.RUNNING})
OPEN = frozenset(JobState) - TERMINAL

# Statements of every call are built once: to build a statement costs five times as much as to run it.
HELD = (shards.c.id == bindparam("claimed")) & (shards.c.fence == bindparam("claimed_fence"))
HELD &= shards.c.state == str(ShardState.RUNNING)  # Condition: a claim still holds its shard (`of_claim`)
FENCED = select(shards).where(HELD)
LEFT_OF_JOB = select(shards.c.id).where(shards.c.job_id == bindparam("job"), LEFT).limit(1)
LEFT_OF = LEFT_OF_JOB.where(shards.c.evaluation == bindparam("of"))
assert ShardState.RUNNING in SHARD_TRANSITIONS[ShardState.QUEUED], "as BEGUN goes"
assert ShardState.DONE in SHARD_TRANSITIONS[ShardState.RUNNING], "as COMPLETED goes"
BEGUN = (
    update(shards)
    .where(shards.c.id == bindparam("shard"), shards.c.state == str(ShardState.QUEUED))
    .values(state=str(ShardState.RUNNING), lease_until=now() + bindparam("lease"))
    .values(claimed_at=now(), progressed_at=now())
)
COMPLETED = (
    update(shards)
    .where(shards.c.id == bindparam("shard"), shards.c.state == str(ShardState.RUNNING))
    .values(state=str(ShardState.DONE), owner=None, lease_until=None)
)


class IllegalTransitionError(RuntimeError):
    """A transition missing from the tables: a defect, not a race."""


def states_before(to: JobState) -> frozenset[JobState]:
    """The states from which a job may go to this one."""
    return frozenset(state for state, following in JOB_TRANSITIONS.items() if to in following)


def transition_job(
    connection: Connection, job_id: str, from_states: Collection[JobState], to: JobState, **values: Any
) -> bool:
    """Moves a job between states, with an event. IllegalTransitionError: the tables forbid it."""
    if _transition(connection, jobs, JOB_TRANSITIONS, jobs.c.id == job_id, from_states, to, values) == 0:
        return False
    record_state_event(connection, job_id)
    return True


def transition_shards(
    connection: Connection,
    condition: ColumnElement[bool],
    from_states: Collection[ShardState],
    to: ShardState,
    **values: Any,
) -> int:
    """Moves shards in given states; IllegalTransitionError: the tables forbid the transition."""
    return _transition(connection, shards, SHARD_TRANSITIONS, condition, from_states, to, values)


def begin(connection: Connection, shard_id: str, taken: Mapping[str, Any]) -> bool:
    """Moves a queued shard to `running`; `taken`: `lease`, in seconds, and columns."""
    return connection.execute(BEGUN, {"shard": shard_id, **taken}).rowcount > 0


def complete(connection: Connection, shard: Row[Any]) -> None:
    """Moves a running shard to `done`."""
    connection.execute(COMPLETED, {"shard": shard.id})


def is_left(connection: Connection, job_id: str, evaluation: int | None = None) -> bool:
    """Whether a shard is unfinished, by one step in an index; plan and train shards are of evaluation 0."""
    named = {"job": job_id} if evaluation is None else {"job": job_id, "of": evaluation}
    return connection.execute(LEFT_OF_JOB if evaluation is None else LEFT_OF, named).first() is not None


def _transition(
    connection: Connection,
    table: Table,
    transitions: Mapping[Any, frozenset[Any]],
    condition: ColumnElement[bool],
    from_states: Collection[JobState | ShardState],
    to: JobState | ShardState,
    values: dict[str, Any],
) -> int:
    for state in from_states:
        if to not in transitions[state]:
            raise IllegalTransitionError(f"{table.name} may not go from {state} to {to}")
    allowed = table.c.state.in_([str(state) for state in from_states])
    statement = update(table).where(condition, allowed).values(state=str(to), **values)
    return connection.execute(statement).rowcount


def lock_job(connection: Connection, job_id: str, *, share: bool = False) -> Row[Any] | None:
    """Reads and locks a job in a transaction; None: unknown. `share`: it only must not change."""
    return connection.execute(_locked_job(share=share), {"job": job_id}).one_or_none()


@cache
def _locked_job(*, share: bool) -> Select[Any]:
    # A lock that spares the key does not wait for rows added below the job.
    return select(jobs).where(jobs.c.id == bindparam("job")).with_for_update(read=share, key_share=not share)


def fenced(connection: Connection, claim: Claim) -> Row[Any] | None:
    """The claimed shard, or None when the claim is void: claimed again, or no longer running."""
    return connection.execute(FENCED, of_claim(claim)).one_or_none()


def of_claim(claim: Claim) -> dict[str, Any]:
    """The parameters of `HELD`."""
    return {"claimed": claim.shard_id, "claimed_fence": claim.fence}


def lock_claim(connection: Connection, claim: Claim) -> tuple[Row[Any], Row[Any]] | None:
    """Locks the claim's job and reads both; None when the claim is void."""
    job = lock_job(connection, claim.job_id)
    shard = fenced(connection, claim) if job is not None else None
    return None if job is None or shard is None else (job, shard)
