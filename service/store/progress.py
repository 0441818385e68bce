"""A job's progress is the sum over its shards, kept in the job's own row."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, update

from service.store.tables import jobs, shards
from service.store.telling import tell_progress


def set_done(connection: Connection, shard: Row[Any], done: int, total: int | None = None) -> None:
    """Sets how much of a shard is done and carries the difference to its job, and tells of it.

    The caller holds the job's lock and has just read the shard. Plan shards count nothing: their
    work is not in examples. `total` is known from the plan for evaluate shards and ignored there.
    """
    if shard.kind == "plan":
        return
    if shard.kind == "train":
        total = shard.total if total is None else max(0, total)
        changes: dict[str, Any] = {"progress_total": total, "cost_total": total}
    else:
        total = shard.total
        changes = {}
    done = max(0, done if total is None else min(done, total))
    difference = done - shard.done
    cost = float(difference) if shard.kind == "train" else shard.cost * difference / max(1, total or 0)
    connection.execute(update(shards).where(shards.c.id == shard.id).values(done=done, total=total))
    connection.execute(
        update(jobs)
        .where(jobs.c.id == shard.job_id)
        .values(progress_done=jobs.c.progress_done + difference, cost_done=jobs.c.cost_done + cost, **changes)
    )
    if difference:
        tell_progress(connection, shard.job_id)
