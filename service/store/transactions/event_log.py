"""The append-only log of a job's events, written in the transaction of the change that they report.

An event's number comes from a counter in the job's row, locked until the commit: the events of a job become
visible in the order of their numbers, and none is skipped.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, update

from assay.service import features
from assay.service.contract.events import EndData, EventData, EventType, MetricData, ProgressData, StateData
from assay.service.contract.records import ResultJson
from assay.service.contract.states import TERMINAL
from assay.service.store.clock import now
from assay.service.store.tables import events, jobs
from assay.service.store.transactions.pace import cost_share, eta_seconds, training_speed

PROGRESS_SECONDS = 0.5
KEEP_EVENTS = 1000  # Among all except the newest events, one report of progress in `THIN_BY` is kept
THIN_EVERY = 256
THIN_BY = 16
NEXT_NUMBER = update(jobs).where(jobs.c.id == bindparam("job")).values(last_event=jobs.c.last_event + 1)
STATE_NUMBER = NEXT_NUMBER.returning(
    jobs.c.last_event, jobs.c.state, jobs.c.attempt, jobs.c.message, jobs.c.error
)
PROGRESS_NUMBER = (
    NEXT_NUMBER.where(
        jobs.c.progress_event_at.is_(None)
        | (jobs.c.progress_event_at <= now() - bindparam("pause"))
        | (jobs.c.progress_event_at > now())  # A clock that was set back must not silence the job.
    )
    .values(progress_event_at=now())
    .returning(jobs.c.last_event, jobs.c.state, jobs.c.paced_at, jobs.c.progress_event_at)
    .returning(jobs.c.progress_done, jobs.c.progress_total, jobs.c.progress_unit, jobs.c.cost_done)
    .returning(jobs.c.cost_total, jobs.c.paced_from, jobs.c.pace)
)
ADDED = insert(events).values(at=now())


def record_state_event(connection: Connection, job_id: str) -> None:
    """Records the job's new state; a terminal one is followed by `end`."""
    row = connection.execute(STATE_NUMBER, {"job": job_id}).one()
    state: StateData = {
        "state": row.state,
        "attempt": row.attempt,
        "message": row.message,
        "error": row.error,
    }
    _insert(connection, job_id, row.last_event, "state", state)
    if row.state in TERMINAL:
        end: EndData = {"state": row.state, "attempt": row.attempt, "error": row.error}
        _append(connection, job_id, "end", end)
        for outbox in features.modules("outbox"):
            outbox.announce_end(connection, job_id)


def record_progress_event(connection: Connection, job_id: str) -> None:
    """Records the job's progress, at most twice a second."""
    row = connection.execute(PROGRESS_NUMBER, {"job": job_id, "pause": PROGRESS_SECONDS}).one_or_none()
    if row is not None:
        _insert(connection, job_id, row.last_event, "progress", _progress(row))


def record_message(connection: Connection, job_id: str, message: str) -> None:
    """Sets the job's message, and records a change; jobs that are unknown or have ended are ignored."""
    changed = (
        (jobs.c.id == job_id)
        & (jobs.c.message != message)
        & jobs.c.state.not_in([str(one) for one in TERMINAL])
    )
    said = connection.execute(update(jobs).where(changed).values(message=message)).rowcount
    if said and message:
        _append(connection, job_id, "log", {"message": message})


def record_metric_event(connection: Connection, job_id: str, evaluation: int, result: ResultJson) -> None:
    """Records the result of an evaluation, without its breakdown."""
    told: MetricData = {"evaluation": evaluation}
    if "name" in result:
        told["name"] = result["name"]
    if "params" in result:
        told["params"] = result["params"]
    if "metrics" in result:
        told["metrics"] = result["metrics"]
    _append(connection, job_id, "metric", told)
    for outbox in features.modules("outbox"):
        outbox.announce_evaluation(connection, job_id, evaluation, result)


def _progress(row: Row[Any]) -> ProgressData:
    return {
        "done": row.progress_done,
        "total": row.progress_total,
        "unit": row.progress_unit,
        "eta_seconds": eta_seconds(row, row.progress_event_at),
        "share": cost_share(row),
        **training_speed(row),
    }


def _append(connection: Connection, job_id: str, kind: EventType, data: EventData) -> None:
    number = connection.execute(NEXT_NUMBER.returning(jobs.c.last_event), {"job": job_id}).scalar_one()
    _insert(connection, job_id, number, kind, data)


def _insert(connection: Connection, job_id: str, number: int, kind: EventType, data: EventData) -> None:
    connection.execute(ADDED, {"job_id": job_id, "seq": number, "type": kind, "data": data})
    if number % THIN_EVERY == 0:
        _thin(connection, job_id, number - KEEP_EVENTS)


def _thin(connection: Connection, job_id: str, until: int) -> None:
    old = (events.c.job_id == job_id) & (events.c.seq <= until) & (events.c.seq % THIN_BY != 0)
    connection.execute(delete(events).where(old, events.c.type.in_(["progress", "log"])))


def one_line(message: str, max_length: int = 500) -> str:
    """The message as one line of at most `max_length` characters."""
    line = " ".join(message.split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"
