"""Reading the events of jobs; `transactions/event_log.py` writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, or_, select

from assay.service.contract.events import EventType
from assay.service.store.database import StorePart
from assay.service.store.row_mapping import unknown_job
from assay.service.store.rows import EventRow
from assay.service.store.tables import events, jobs

CHUNK = 200


class Events(StorePart):
    """The events."""

    def newest(self, job_id: str) -> EventRow:
        """The last event of a job. Raises NotFound: no such job."""
        statement = select(events).where(events.c.job_id == job_id).order_by(events.c.seq.desc()).limit(1)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            raise unknown_job(job_id)
        return _event(row)

    def of(
        self, job_id: str, *, after: int = 0, until: int | None = None, limit: int = 500
    ) -> list[EventRow]:
        """The events of a job after a number, up to another, in order; at most `limit` of them."""
        statement = select(events).where(events.c.job_id == job_id, events.c.seq > after)
        if until is not None:
            statement = statement.where(events.c.seq <= until)
        with self._database.reading() as connection:
            rows = connection.execute(statement.order_by(events.c.seq).limit(limit)).all()
        return [_event(row) for row in rows]

    def latest(self, job_id: str, types: Collection[EventType], limit: int) -> list[EventRow]:
        """The last `limit` events of these types, in order."""
        mine = (events.c.job_id == job_id) & events.c.type.in_(sorted(types))
        statement = select(events).where(mine).order_by(events.c.seq.desc()).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        return [_event(row) for row in reversed(rows)]

    def since(self, positions: Mapping[str, int]) -> dict[str, list[EventRow] | None]:
        """New events of many jobs after these numbers, in order; None for a deleted job."""
        found: dict[str, list[EventRow] | None] = {}
        left = iter(positions.items())
        with self._database.reading() as connection:
            while chunk := dict(islice(left, CHUNK)):
                found |= _since(connection, chunk)
        return found


def _since(connection: Connection, positions: Mapping[str, int]) -> dict[str, list[EventRow] | None]:
    counters = select(jobs.c.id, jobs.c.last_event).where(jobs.c.id.in_(list(positions)))
    newest = {row.id: row.last_event for row in connection.execute(counters)}
    found: dict[str, list[EventRow] | None] = {job_id: None for job_id in positions if job_id not in newest}
    changed = [job_id for job_id, number in newest.items() if number > positions[job_id]]
    if not changed:
        return found
    wanted = [(events.c.job_id == job_id) & (events.c.seq > positions[job_id]) for job_id in changed]
    for row in connection.execute(select(events).where(or_(*wanted)).order_by(events.c.job_id, events.c.seq)):
        rows = found.setdefault(row.job_id, [])
        assert rows is not None
        rows.append(_event(row))
    return found


def _event(row: Row[Any]) -> EventRow:
    return EventRow(**row._mapping)
