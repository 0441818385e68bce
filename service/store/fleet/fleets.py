"""Fleets: workers that a scheduler of machines (Slurm) starts and ends for a controller, which reports here.

The controller asks the scheduler for workers, and is told here how many there is work for. A worker of a
fleet is known by its name: `HOST:FLEET.NUMBER`. The code of its workers is known by the worker that started
last, also when none is left: shards of other code are no work for them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, Select, case, delete, func, select, update

from assay.service.contract.fleet.workers import LOG_FOLLOWS
from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.store.clock import now
from assay.service.store.columns import upsert
from assay.service.store.database import Database, StorePart
from assay.service.store.fleet.demand import demand_of
from assay.service.store.fleet.identities import alive, forget_code, standing
from assay.service.store.tables import RUNNING, cordons, fleets, shards, workers

HEARD_SECONDS = 180  # A controller silent for longer is away
FORGOTTEN_SECONDS = 86400
LATELY_SECONDS = 1.0
FleetPhase = Literal["begins", "runs", "ends"]  # Of its controller
REPORTED = ("name", "engine", "device", "devices", "most", "running", "pending", "reason")
ONLINE = (fleets.c.seen_at >= now() - HEARD_SECONDS) & ~fleets.c.ended


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
    online: bool = field(default=False)  # whether its controller was heard lately, and has not ended
    ended: bool = False  # as its controller said
    names: list[str] = field(default_factory=list)  # of its workers with a sign of life in the last minute
    queued: int = 0  # shards that its workers could run
    busy: int = 0  # shards that they run
    withheld: int = 0  # queued shards that they may not take: of other code, or over a tenant's limit
    identity: str = ""  # of its workers' code, by the worker that started last; empty for unknown
    standing: str = ""  # why this code may take no work: "withdrawn" or "unknown"

    @property
    def said(self) -> str:
        """What a waiting job is told; empty where the fleet says nothing of it."""
        if self.standing:
            return (
                f"the workers of the fleet {self.name} have code that may take no work (identity"
                f" {self.identity}): upgrade its nodes and start its controller again, or have an"
                f" administrator allow it (assay workers allow {self.identity})"
            )
        if not self.pending and not self.reason:
            return ""
        told = self.reason.partition(LOG_FOLLOWS)[0]  # tenants see no line of an operator's log
        return f"waiting for {self.engine}" + (f": {told}" if told else "")


class Fleets(StorePart):
    """The fleets' last reports."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._asking: tuple[float, list[Fleet]] = float("-inf"), []

    def report(self, told: Fleet, phase: FleetPhase = "runs", defaults: Limits = UNLIMITED) -> Fleet:
        """Keeps a controller's report, in place of the fleet's last; the fleet with its work now.

        A controller that begins has its nodes' code learned again.
        """
        values = {name: getattr(told, name) for name in REPORTED}
        with self._database.writing() as connection:
            upsert(connection, fleets, {**values, "seen_at": now(), "ended": phase == "ends"})
            if phase == "begins":
                forget_code(connection, told.name)
            _learn_code(connection, told.name)
            connection.execute(delete(fleets).where(fleets.c.seen_at < now() - FORGOTTEN_SECONDS))
            _forget_cordons(connection, told.name)
            (found,) = _read(connection, defaults, told.name)
        self._asking = float("-inf"), []
        return found

    def all(self, defaults: Limits = UNLIMITED) -> list[Fleet]:
        """All fleets that were heard within a day, by name."""
        with self._database.reading() as connection:
            return _read(connection, defaults)

    def waiting(self, device: str, devices: int) -> str:
        """What a job waits for, if a fleet lately asked for a worker for it or had none; else empty."""
        read_at, asking = self._asking
        if time.monotonic() - read_at >= LATELY_SECONDS:
            with self._database.reading() as connection:
                rows = connection.execute(_fleets().where(ONLINE).order_by(fleets.c.name)).all()
            asking = [Fleet(**_values(row)) for row in rows]
            self._asking = time.monotonic(), asking
        serves = (one for one in asking if one.devices >= devices and device in ("auto", one.device))
        said = sorted((bool(one.standing), one.said) for one in serves if one.said)
        return said[0][1] if said else ""


def _fleets() -> Select[Any]:
    verdict = case((fleets.c.identity == "", ""), else_=standing(fleets))
    return select(fleets, verdict.label("standing"), ONLINE.label("online"))


def _values(row: Row[Any]) -> dict[str, Any]:
    fields = {**row._mapping, "online": bool(row.online)}
    return {name: value for name, value in fields.items() if name in Fleet.__dataclass_fields__}


def _learn_code(connection: Connection, name: str) -> None:
    since = select(fleets.c.code_since).where(fleets.c.name == name).scalar_subquery()
    mine = of_fleet(workers.c.name, name) & (workers.c.identity != "") & (workers.c.begun_at >= since)
    newest = select(workers.c.identity, workers.c.release).where(mine).order_by(workers.c.begun_at.desc())
    found = connection.execute(newest.limit(1)).one_or_none()
    if found is not None:
        connection.execute(update(fleets).where(fleets.c.name == name).values(found._asdict()))


def _forget_cordons(connection: Connection, name: str) -> None:
    # A name has the number of a job of the scheduler, which never comes again.
    gone = of_fleet(cordons.c.name, name) & (cordons.c.since < now() - FORGOTTEN_SECONDS)
    connection.execute(delete(cordons).where(gone, cordons.c.name.not_in(select(workers.c.name))))


def of_fleet(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """Condition: a worker's name is of a fleet."""
    return column.contains(f":{name}.", autoescape=True)


def _read(connection: Connection, defaults: Limits, name: str | None = None) -> list[Fleet]:
    chosen = fleets.c.name == name if name is not None else fleets.c.seen_at >= now() - FORGOTTEN_SECONDS
    found = []
    for row in connection.execute(_fleets().where(chosen).order_by(fleets.c.name)).all():
        code = None if row.standing else row.identity
        work = demand_of(connection, row.device, row.devices, code, defaults)
        values = {**_values(row), "queued": work.claimable, "withheld": work.withheld}
        found.append(Fleet(**values, busy=_busy(connection, row.name), names=_names(connection, row.name)))
    return found


def _names(connection: Connection, name: str) -> list[str]:
    lately = select(workers.c.name).where(of_fleet(workers.c.name, name), alive())
    return list(connection.execute(lately.order_by(workers.c.name)).scalars())


def _busy(connection: Connection, name: str) -> int:
    mine = select(workers.c.worker).where(of_fleet(workers.c.name, name))
    held = select(func.count()).select_from(shards).where(RUNNING, shards.c.owner.in_(mine))
    return int(connection.execute(held).scalar_one())
