"""When the database's clock was last known to be right, by a clock of a machine that cannot jump.

Whoever leads writes it; a process of the same boot that begins to lead finds a jump since.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, select

from assay.service.store.columns import own_insert
from assay.service.store.fleet import lease_owner
from assay.service.store.tenant_tables import clock_marks


@dataclass(frozen=True)
class ClockMark:
    """A moment by the database's clock, in unix seconds, and by the monotonic clock of a boot."""

    at: float
    monotonic: float
    boot: str


def mark_of(at: float) -> ClockMark:
    """The mark of this machine for the present, which is `at` by the database's clock."""
    return ClockMark(at, time.monotonic(), lease_owner.boot())


def read_mark(connection: Connection) -> ClockMark | None:
    """The last mark; None where no process has led yet."""
    row = connection.execute(select(clock_marks)).one_or_none()
    return None if row is None else ClockMark(row.at, row.monotonic, row.boot)


def write_mark(connection: Connection, mark: ClockMark) -> None:
    """Replaces the last mark."""
    values = asdict(mark)
    insert = own_insert(connection, clock_marks).values(id=1, **values)
    connection.execute(insert.on_conflict_do_update(index_elements=[clock_marks.c.id], set_=values))
