"""Fleets: workers that a scheduler of machines (Slurm) starts and ends for a controller, which reports here.

The controller asks the scheduler for workers, and is told here how many there is work for. A worker of a
fleet is known by its name: `HOST:FLEET.NUMBER`.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, func, select

from assay.service.contract.states import ShardState
from assay.service.store.clock import now
from assay.service.store.columns import upsert
from assay.service.store.database import Database, StorePart
from assay.service.store.tables import RUNNING, fleets, jobs, shards, workers
from assay.service.store.transactions.transitions import CLAIMABLE

HEARD_SECONDS = 180  # A controller silent for longer is away
FORGOTTEN_SECONDS = 86400
LATELY_SECONDS = 1.0


@dataclass(frozen=True)
class Fleet:
    """A fleet as its controller last reported it, and its work now."""

    name: str
    engine: str  # the scheduler's name, for people
    device: str  # class, and number for a training, of each worker
    devices: int
    most: int  # workers
    running: int  # workers that the scheduler has started
    pending: int  # workers that it was asked for
    reason: str = ""  # why they are pending, in the scheduler's word
    seen_at: float = 0.0  # unix seconds
    online: bool = field(default=False)  # whether its controller was heard lately
    queued: int = 0  # shards that its workers could run
    busy: int = 0  # shards that they run

    @property
    def said(self) -> str:
        """What a waiting job is told; empty without a worker that the scheduler was asked for."""
        if not self.pending:
            return ""
        return f"waiting for {self.engine}" + (f": {self.reason}" if self.reason else "")


class Fleets(StorePart):
    """The fleets' last reports."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._asking: tuple[float, list[Fleet]] = float("-inf"), []

    def report(self, told: Fleet) -> Fleet:
        """Keeps a controller's report, in place of the fleet's last; the fleet with its work now."""
        given = asdict(told)
        values = {name: given[name] for name in fleets.c.keys() if name != "seen_at"}  # noqa: SIM118
        with self._database.writing() as connection:
            upsert(connection, fleets, {**values, "seen_at": now()})
            connection.execute(delete(fleets).where(fleets.c.seen_at < now() - FORGOTTEN_SECONDS))
            (found,) = _read(connection, told.name)
        self._asking = float("-inf"), []
        return found

    def all(self) -> list[Fleet]:
        """All fleets that were heard within a day, by name."""
        with self._database.reading() as connection:
            return _read(connection)

    def waiting(self, device: str, devices: int) -> str:
        """What a job waits for, if a fleet was asked for a worker for it a second ago; else empty."""
        read_at, asking = self._asking
        if time.monotonic() - read_at >= LATELY_SECONDS:
            serving = (fleets.c.pending > 0) & (fleets.c.seen_at >= now() - HEARD_SECONDS)
            with self._database.reading() as connection:
                rows = connection.execute(select(fleets).where(serving).order_by(fleets.c.name)).all()
            asking = [Fleet(**row._mapping) for row in rows]
            self._asking = time.monotonic(), asking
        serves = (one.said for one in asking if one.devices >= devices and device in ("auto", one.device))
        return next(serves, "")


def _read(connection: Connection, name: str | None = None) -> list[Fleet]:
    chosen = fleets.c.name == name if name is not None else fleets.c.seen_at >= now() - FORGOTTEN_SECONDS
    online = (fleets.c.seen_at >= now() - HEARD_SECONDS).label("online")
    rows = connection.execute(select(fleets, online).where(chosen).order_by(fleets.c.name)).all()
    found = []
    for row in rows:
        values: dict[str, Any] = {**row._mapping, "online": bool(row.online)}
        values |= {
            "queued": _queued(connection, row.device, row.devices),
            "busy": _busy(connection, row.name),
        }
        found.append(Fleet(**values))
    return found


def _queued(connection: Connection, device: str, devices: int) -> int:
    claimable = jobs.c.state.in_([str(state) for state in CLAIMABLE])
    mine = (shards.c.state == str(ShardState.QUEUED)) & shards.c.device.in_(["auto", device])
    statement = select(func.count()).select_from(shards.join(jobs, jobs.c.id == shards.c.job_id))
    return int(connection.execute(statement.where(claimable, mine, shards.c.devices <= devices)).scalar_one())


def _busy(connection: Connection, name: str) -> int:
    mine = select(workers.c.worker).where(workers.c.name.contains(f":{name}.", autoescape=True))
    held = select(func.count()).select_from(shards).where(RUNNING, shards.c.owner.in_(mine))
    return int(connection.execute(held).scalar_one())
