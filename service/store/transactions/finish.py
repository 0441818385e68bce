"""Finishing a shard: its outcome and its state `done`, written in one transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select

from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.columns import PlainText, pack
from assay.service.store.rows import Claim, Finished, OutcomeRow
from assay.service.store.tables import outcomes, shards
from assay.service.store.transactions.deadline import pause
from assay.service.store.transactions.end_job import cancel_when_idle
from assay.service.store.transactions.progress import set_done
from assay.service.store.transactions.repetition import compare, draw, known_as
from assay.service.store.transactions.transitions import complete, is_left, lock_job

WRITTEN = insert(outcomes).values(
    created_at=now(), worker=known_as(bindparam("owner", type_=PlainText))
)  # and the columns that are given


def finish(connection: Connection, job: Row[Any], shard: Row[Any], outcome: OutcomeRow) -> Finished:
    """Completes a running shard with its outcome; a repetition's is only compared."""
    again = shard.kind == "repeat"
    if again:
        compare(connection, job, shard, outcome)
    else:
        _write_outcome(connection, shard, outcome)
    pause(connection, job)
    if job.state == JobState.CANCELING:  # its row is locked
        cancel_when_idle(connection, job.id)
    done = finished(connection, job, shard)
    more = done.job_done and draw(connection, job)
    return Finished(evaluation_done=done.evaluation_done and not again, job_done=done.job_done and not more)


def _write_outcome(connection: Connection, shard: Row[Any], outcome: OutcomeRow) -> None:
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
        "owner": shard.owner,
    }
    connection.execute(WRITTEN, values)
    if shard.total is not None:
        set_done(connection, shard, shard.total)
    complete(connection, shard)


def finished(connection: Connection, job: Row[Any], shard: Row[Any]) -> Finished:
    """Completions caused by a shard that has just been moved to `done`."""
    mine = is_left(connection, job.id, shard.evaluation)
    live = JobState(job.state) in {JobState.STARTING, JobState.RUNNING}
    return Finished(evaluation_done=not mine, job_done=live and not mine and not is_left(connection, job.id))


def finished_before(connection: Connection, claim: Claim) -> Finished | None:
    """Completions by this claim's earlier call; None if it did not finish the shard."""
    # The caller holds the job's lock. Once the job has succeeded, nothing is left to do.
    done = (shards.c.state == str(ShardState.DONE)) & (shards.c.fence == claim.fence)
    shard = connection.execute(select(shards).where(shards.c.id == claim.shard_id, done)).one_or_none()
    job = None if shard is None else lock_job(connection, claim.job_id)
    if job is None or shard is None:
        return None
    if job.state == JobState.SUCCEEDED:
        return Finished(evaluation_done=False, job_done=False)
    return finished(connection, job, shard)
