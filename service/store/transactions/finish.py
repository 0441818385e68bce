"""Finishing a shard: its outcome and its state `done`, written in one transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert, select

from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.columns import pack
from assay.service.store.rows import Claim, Finished, OutcomeRow
from assay.service.store.tables import LEFT, outcomes, shards
from assay.service.store.transactions.progress import set_done
from assay.service.store.transactions.transitions import lock_job, transition_shards


def complete(connection: Connection, shard: Row[Any]) -> None:
    """Moves a running shard to `done`."""
    free = {"owner": None, "lease_until": None}
    transition_shards(connection, shards.c.id == shard.id, {ShardState.RUNNING}, ShardState.DONE, **free)


def write_outcome(connection: Connection, shard: Row[Any], outcome: OutcomeRow) -> None:
    """Adds the outcome of a running shard and completes the shard."""
    assert (outcome.evaluation, outcome.number) == (shard.evaluation, shard.number), "another shard's outcome"
    values = {
        "shard_id": shard.id,
        "job_id": shard.job_id,
        "fence": shard.fence,
        "n": outcome.n,
        "payload": pack(outcome.columns, outcome.extra),
        "seconds": outcome.seconds,
        "forward_passes": outcome.forward_passes,
        "backward_passes": outcome.backward_passes,
        "created_at": now(),
    }
    connection.execute(insert(outcomes).values(**values))
    if shard.total is not None:
        set_done(connection, shard, shard.total)
    complete(connection, shard)


def finished(connection: Connection, job: Row[Any], shard: Row[Any]) -> Finished:
    """Completions caused by a shard that has just been moved to `done`."""
    mine = is_left(connection, job.id, shard.evaluation)
    live = JobState(job.state) in {JobState.STARTING, JobState.RUNNING}
    return Finished(evaluation_done=not mine, job_done=live and not mine and not is_left(connection, job.id))


def finished_before(connection: Connection, claim: Claim) -> Finished | None:
    """Completions by this claim's earlier call, read anew; None if it did not finish the shard.

    The caller holds the job's lock. Once the job has succeeded, nothing is left to do.
    """
    done = (shards.c.state == str(ShardState.DONE)) & (shards.c.fence == claim.fence)
    shard = connection.execute(select(shards).where(shards.c.id == claim.shard_id, done)).one_or_none()
    job = None if shard is None else lock_job(connection, claim.job_id)
    if job is None or shard is None:
        return None
    if job.state == JobState.SUCCEEDED:
        return Finished(evaluation_done=False, job_done=False)
    return finished(connection, job, shard)


def is_left(connection: Connection, job_id: str, evaluation: int | None = None) -> bool:
    """Whether a job, or one of its evaluations, has a shard that is not done.

    One step in an index, however many shards there are. Those that plan and train count as evaluation 0.
    """
    left = select(shards.c.id).where(shards.c.job_id == job_id, LEFT).limit(1)
    if evaluation is not None:
        left = left.where(shards.c.evaluation == evaluation)
    return connection.execute(left).first() is not None
