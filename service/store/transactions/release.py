"""How a shard leaves its worker without an outcome. All in the caller's transaction, under the job's lock."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row

from assay.service.contract.states import JobState, ShardState
from assay.service.store.tables import shards
from assay.service.store.transactions.end_job import cancel_when_idle, end_job, problem
from assay.service.store.transactions.progress import set_done
from assay.service.store.transactions.transitions import CLAIMABLE, move_job, move_shards


def leave(connection: Connection, shard: Row[Any], to: ShardState, **values: Any) -> None:
    """Moves a running shard to a state without owner.

    What an evaluate shard had done is lost; training goes on from its checkpoint and says itself
    how far that was.
    """
    if shard.kind == "evaluate":
        set_done(connection, shard, 0)
    free = {"owner": None, "lease_until": None}
    move_shards(connection, shards.c.id == shard.id, {ShardState.RUNNING}, to, **free, **values)


def put_back(connection: Connection, job: Row[Any], shard: Row[Any], **values: Any) -> None:
    """Queues a running shard again; if nobody wants its work any more, it is canceled instead."""
    if JobState(job.state) not in CLAIMABLE:
        leave(connection, shard, ShardState.CANCELED, **values)
        cancel_when_idle(connection, job.id)
        return
    leave(connection, shard, ShardState.QUEUED, **values)
    if job.state == JobState.STARTING:
        # A starting job has one shard, and nobody works on it now.
        move_job(connection, job.id, {JobState.STARTING}, JobState.QUEUED)


def give_up(
    connection: Connection, job: Row[Any], shard: Row[Any], error_type: str, message: str, **values: Any
) -> None:
    """Fails a running shard and its job."""
    leave(connection, shard, ShardState.FAILED, **values)
    error = problem(error_type, message)
    end_job(connection, job.id, {JobState(job.state)}, JobState.FAILED, error=error)
