"""Workers as administrators see them, and cordons: workers taken out of service by their names.

A worker has the name of its place (`box:gpu0`). A restart keeps the name and the cordon. A worker asks for
its cordon before each claim; `drain` also takes the running shard back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select

from assay.service.contract.audit import Action
from assay.service.contract.errors import ErrorDetail, NotFound
from assay.service.contract.fleet.worker_records import Gauges
from assay.service.contract.problems import nearest, readable
from assay.service.contract.states import ShardState
from assay.service.store.audit import Actor, record
from assay.service.store.clock import now
from assay.service.store.columns import upsert
from assay.service.store.database import Database, StorePart
from assay.service.store.fleet.identities import ONLINE_SECONDS, Identities, standing
from assay.service.store.tables import cordons, shards, workers


@dataclass(frozen=True)
class Cordon:
    """Who took a worker out of service and when (unix seconds); `drain` ends its running shard too."""

    name: str
    drain: bool
    by_whom: str
    since: float


@dataclass(frozen=True)
class ListedWorker:
    """A worker with a sign of life within a day, or a cordon."""

    name: str
    worker: str | None  # its id; None without a process, as are `host` and `pid`
    host: str | None
    pid: int | None
    device_classes: tuple[str, ...]
    devices: int  # for one shard; 0: it takes none
    seen_at: float | None  # its last heartbeat, in unix seconds
    online: bool  # whether that was within the last minute
    gauges: Gauges
    cordon: Cordon | None
    running: tuple[str, str] | None  # the shard that it runs and the shard's job
    identity: str = ""  # of its code
    standing: str = ""  # why its code may take no work, "withdrawn" or "unknown"


CORDON = select(cordons).where(cordons.c.name == bindparam("worker"))


class Cordons(StorePart):
    """Cordons by the names of workers, in short transactions; `identities`: rulings on workers' code."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.identities = Identities(database)

    def of(self, name: str) -> Cordon | None:
        """The cordon of a worker; None for one in service."""
        with self._database.reading() as connection:
            return cordon_of(connection, name)

    def set(self, name: str, *, drain: bool, by_whom: str, by: Actor | None = None) -> ListedWorker:
        """Takes a worker out of service; `drain`: with its running shard. NotFound, with the nearest name."""
        with self._database.writing() as connection:
            known = _known(connection, name)
            values = {"name": known, "drain": drain, "by_whom": by_whom, "since": now()}
            upsert(connection, cordons, values)
            found = _listed(connection, known)
            action: Action = "worker.drain" if drain else "worker.cordon"
            record(connection, by, action, known)
        return found

    def lift(self, name: str, *, by: Actor | None = None) -> ListedWorker:
        """Puts a worker back into service. Raises NotFound: no worker or cordon so named."""
        with self._database.writing() as connection:
            known = _known(connection, name)
            listed = _listed(connection, known)
            connection.execute(delete(cordons).where(cordons.c.name == known))
            record(connection, by, "worker.uncordon", known)
        return ListedWorker(**{**listed.__dict__, "cordon": None})

    def workers(self) -> list[ListedWorker]:
        """The online workers by name; for a name without any, the worker seen last."""
        with self._database.reading() as connection:
            return _all(connection)


def cordon_of(connection: Connection, name: str) -> Cordon | None:
    """The cordon of a worker; None for one in service."""
    row = connection.execute(CORDON, {"worker": name}).one_or_none()
    return None if row is None else Cordon(**row._mapping)


def _known(connection: Connection, name: str) -> str:
    listed = _all(connection)
    names = {one.name: one.name for one in listed} | {one.worker: one.name for one in listed if one.worker}
    if name in names:
        return names[name]
    allowed = sorted({one.name for one in listed})
    near = nearest(name, allowed)
    hint = f"; did you mean {near}?" if near else ""
    detail = ErrorDetail(
        loc=["path", "name"],
        message="unknown worker",
        given=readable(name),
        allowed=allowed or "there are no workers",
        nearest=near,
    )
    raise NotFound(f"there is no worker {readable(name, 100)!r}{hint}", [detail])


def _listed(connection: Connection, name: str) -> ListedWorker:
    return max((one for one in _all(connection) if one.name == name), key=lambda one: one.seen_at or 0.0)


def _all(connection: Connection) -> list[ListedWorker]:
    held = {row.name: Cordon(**row._mapping) for row in connection.execute(select(cordons))}
    at = float(connection.execute(select(now())).scalar_one())
    rows = connection.execute(
        select(workers, standing().label("standing")).order_by(workers.c.seen_at.desc())
    ).all()
    running = _running(connection, [row.worker for row in rows])
    found: list[ListedWorker] = []
    for row in rows:
        name = row.name or row.worker
        online = row.seen_at >= at - ONLINE_SECONDS
        if not online and any(one.name == name for one in found):
            continue
        found.append(
            ListedWorker(
                name=name,
                worker=row.worker,
                host=row.host,
                pid=row.pid,
                device_classes=tuple(filter(None, row.device_classes.split(","))),
                devices=row.devices,
                seen_at=row.seen_at,
                online=online,
                gauges=row.gauges or Gauges(),
                cordon=held.get(name),
                running=running.get(row.worker),
                identity=row.identity,
                standing=row.standing,
            )
        )
    names = {one.name for one in found}
    for name, cordon in held.items():
        if name not in names:
            found.append(ListedWorker(name, None, None, None, (), 0, None, False, Gauges(), cordon, None))
    return sorted(found, key=lambda one: (one.name, one.worker or ""))


def _running(connection: Connection, owners: Sequence[str]) -> dict[str, tuple[str, str]]:
    held = (shards.c.state == str(ShardState.RUNNING)) & shards.c.owner.in_(owners)
    rows: Any = connection.execute(select(shards.c.owner, shards.c.id, shards.c.job_id).where(held))
    return {row.owner: (row.id, row.job_id) for row in rows}
