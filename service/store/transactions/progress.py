"""A job's progress: the sum over its shards in its own row; Redis has newer reports of running shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from assay.service.contract.records import TrainingSpeed
from assay.service.store.clock import now
from assay.service.store.rows import JobRow, ProgressSnapshot, RunningShard, ShardKind, ShardReport
from assay.service.store.tables import RUNNING, jobs, shards
from assay.service.store.transactions.event_log import one_line, record_message, record_progress_event
from assay.service.store.transactions.pace import new_pace, paced

UNCOUNTED = ("plan", "repeat")  # Kinds of shards without a part in their job's progress.
DONE_NOW = update(shards).where(shards.c.id == bindparam("shard")).values(progressed_at=now())
SUMMED = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(
        progress_done=jobs.c.progress_done + bindparam("difference"),
        cost_done=jobs.c.cost_done + bindparam("cost"),
    )
)
REPORTED = select(shards).where(shards.c.id.in_(bindparam("reported", expanding=True)), RUNNING)
PACE = select(jobs.c.pace, jobs.c.paced_at, now().label("at")).where(jobs.c.id == bindparam("job"))


def set_done(
    connection: Connection,
    shard: Row[Any],
    done: int,
    total: int | None = None,
    speed: TrainingSpeed | None = None,
) -> None:
    """Sets a shard's progress, adds the difference to its job and records the event."""
    # The caller holds the job's lock and has just read the shard. Plans (not in examples) and repetitions
    # (done examples) do not count. `total` is ignored for evaluate shards: the plan has it.
    if shard.kind in UNCOUNTED:
        return
    if shard.kind == "train":
        total = shard.total if total is None else max(0, total)
        changes: dict[str, Any] = {"progress_total": total, "cost_total": total}
        if speed:
            changes["pace"] = {**new_pace([], None), "training": speed}
    elif shard.kind == "evaluate":
        advance(connection, shard.job_id, [(shard, done)])
        return
    else:
        total = shard.total
        changes = {}
    done = max(0, done if total is None else min(done, total))
    difference = done - shard.done
    connection.execute(DONE_NOW, {"shard": shard.id, "done": done, "total": total})
    summed = {"job": shard.job_id, "difference": difference}
    summed["cost"] = _cost(shard.kind, shard.cost, difference, total)
    connection.execute(SUMMED, {**summed, **changes})
    if difference:
        record_progress_event(connection, shard.job_id)


def advance(connection: Connection, job_id: str, reports: Sequence[tuple[Row[Any], int]]) -> None:
    """As `set_done`, for evaluate shards of a job and their done examples, in as few statements."""
    row = connection.execute(PACE, {"job": job_id}).one()
    pace, moved, cost, rows = row.pace, list[int](), 0.0, list[dict[str, Any]]()
    for shard, said in reports:
        done = max(0, said if shard.total is None else min(said, shard.total))
        moved.append(done - shard.done)
        part = _cost(shard.kind, shard.cost, moved[-1], shard.total)
        if pace is not None:  # the time since the shard's last report is the evaluation's
            seconds = 0.0 if shard.progressed_at is None else row.at - shard.progressed_at
            pace = paced(pace, shard.evaluation, part, seconds, row.at, row.paced_at)
        cost += part
        rows.append({"shard": shard.id, "done": done, "total": shard.total})
    connection.execute(DONE_NOW, rows)
    changes = {} if pace is None else {"pace": pace}
    connection.execute(SUMMED, {"job": job_id, "difference": sum(moved), "cost": cost, **changes})
    if any(moved):
        record_progress_event(connection, job_id)


def take_reports(connection: Connection, reports: Sequence[ShardReport]) -> None:
    """Takes reports of evaluate shards of a job in order, each at most once; void claims are ignored."""
    # The caller holds the job's lock. A database gives rows in any order, and the last message is shown.
    by_shard = {one.claim.shard_id: one for one in reports}
    rows = {row.id: row for row in connection.execute(REPORTED, {"reported": [*by_shard]})}
    known = [(rows[shard], one) for shard, one in by_shard.items() if shard in rows]
    held = [(row, one) for row, one in known if row.fence == one.claim.fence]
    counted = [(row, one.done) for row, one in held if row.kind not in UNCOUNTED]
    if counted:
        advance(connection, counted[0][0].job_id, counted)
    said = [one.message for _, one in held if one.message is not None]
    if said:
        record_message(connection, held[0][0].job_id, one_line(said[-1]))


def progress_snapshot(connection: Connection, job_id: str) -> ProgressSnapshot | None:
    """A job's progress in one statement: no shard is counted twice or missed."""
    running = (shards.c.job_id == jobs.c.id) & RUNNING
    columns = (shards.c.id, shards.c.fence, shards.c.kind, shards.c.done, shards.c.total, shards.c.cost)
    statement = (
        select(jobs.c.progress_done, jobs.c.cost_done, *columns)
        .select_from(jobs.outerjoin(shards, running))
        .where(jobs.c.id == job_id)
        .order_by(shards.c.id)
    )
    rows = connection.execute(statement).all()
    if not rows:
        return None
    at_work = [RunningShard(*row[2:]) for row in rows if row.id is not None]
    return ProgressSnapshot(rows[0].progress_done, rows[0].cost_done, at_work)


def with_reports(job: JobRow, snapshot: ProgressSnapshot, reported: Sequence[int | None]) -> JobRow:
    """The job with reports of its running shards that the database does not have yet."""
    # `snapshot` is read after the job; `reported` is the done part of each of `snapshot.running`, None where
    # unknown.
    done, cost = snapshot.progress_done, snapshot.cost_done
    for shard, report in zip(snapshot.running, reported, strict=True):
        ahead = _ahead(shard, report)
        done += ahead
        cost += _cost(shard.kind, shard.cost, ahead, shard.total)
    if job.progress_total is not None:
        done = min(done, job.progress_total)
    if job.cost_total is not None:
        cost = min(cost, job.cost_total)
    return replace(job, progress_done=done, cost_done=cost)


def _ahead(shard: RunningShard, report: int | None) -> int:
    """A report's lead over the shard's row, capped at its total; 0 where it does not count."""
    if report is None or shard.kind in UNCOUNTED or shard.total is None:
        return 0
    return max(0, min(report, shard.total) - shard.done)


def _cost(kind: ShardKind, cost: float, done: int, total: int | None) -> float:
    return float(done) if kind == "train" else cost * done / max(1, total or 0)
