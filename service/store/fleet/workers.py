"""Live workers, for monitoring and `workers_online` only: a lost shard is detected by its lease."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import Connection, delete, func, select, update

from assay.service.contract.findings.data_disagreements import Disagreements, disagreements
from assay.service.contract.fleet.worker_records import ContainmentRecord, Gauges
from assay.service.contract.weights.pulled import PulledRecords
from assay.service.store.clock import now
from assay.service.store.columns import own_insert
from assay.service.store.database import Database, StorePart
from assay.service.store.fleet.clock_marks import ClockMark, mark_of, read_mark, write_mark
from assay.service.store.fleet.fleets import Fleets
from assay.service.store.fleet.heartbeats import Heartbeats, SignOfLife, sign_of_life
from assay.service.store.fleet.identities import (
    ONLINE_SECONDS,
    Refused,
    admitted,
    alive,
    refused,
    serves,
    uncordoned,
)
from assay.service.store.fleet.lanes import Blocked, blocked
from assay.service.store.tables import counters, duties, workers
from assay.service.store.transactions.deadline import put_right

REAPER = "reaper"  # The reaper's, which one worker has
LATELY_SECONDS = 1.0

# Histogram of shard lengths, in seconds; a plan aims at minutes.
SHARD_BOUNDS = (1, 2, 5, 10, 30, 60, 120, 240, 480, 900, 1800, 3600, 7200, 14400, 43200, 86400)
CounterKey = tuple[str, tuple[tuple[str, str], ...]]  # A counter's name, and its labels with their values


@dataclass(frozen=True)
class DutyRow:
    """A duty at the moment `present`; the holder and `until` are None without a holder.

    Times are of the database's clock, which may jump: `until` only tells whether the holder has been there
    since. `mark`: when that clock was last right.
    """

    present: ClockMark
    mark: ClockMark | None
    worker: str | None = None
    until: float | None = None


class Workers(StorePart):
    """The workers' heartbeats."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.fleets = Fleets(database)
        self.heartbeats = Heartbeats()
        self._lately: dict[tuple[str, int, str], tuple[float, int]] = {}
        self._clock = (float("-inf"), 0.0)

    def clock(self) -> float:
        """The present by the database's clock, in unix seconds."""
        read_at, ahead = self._clock
        if time.monotonic() - read_at >= LATELY_SECONDS:
            with self._database.reading() as connection:
                at = float(connection.execute(select(now())).scalar_one())
            ahead = at - time.monotonic()
            self._clock = (time.monotonic(), ahead)
        return time.monotonic() + ahead

    def beat(
        self,
        worker: str,
        host: str,
        device_classes: Sequence[str],
        pid: int,
        gauges: Gauges | None = None,
        devices: int = 1,
        name: str = "",
        identity: str = "",
    ) -> None:
        """Records a worker's heartbeat; workers silent for a day are forgotten.

        `device_classes`: with a GPU also "cpu". `gauges`: its own measurements. `devices`: for a shard; with
        0 it takes none and is not online. `identity`: of its code; if empty, it takes no planned shards.
        `name`: of its place on its machine, which a restart keeps, for cordons.
        """
        sign = sign_of_life(worker, host, device_classes, pid, gauges, devices, name, identity)
        with self._database.writing() as connection:
            self.note(connection, sign)

    def note(self, connection: Connection, sign: SignOfLife) -> None:
        """As `beat`, in a transaction; its last statement, as rows of workers are locked after all others."""
        if self.heartbeats.write(connection, sign):
            self._lately.clear()
        self.heartbeats.sweep(connection)

    def write_kept(self) -> None:
        """Records the signs of life that are kept in `heartbeats`, if any."""
        if self.heartbeats.are_kept:
            with self._database.writing() as connection:
                if self.heartbeats.write_kept(connection):
                    self._lately.clear()
                self.heartbeats.sweep(connection)

    def online(
        self,
        device: str,
        within_seconds: float = ONLINE_SECONDS,
        host: str | None = None,
        devices: int = 1,
        identity: str = "",
        *,
        cordoned: bool = False,
        besides: str = "",
    ) -> int:
        """Number of workers serving a device ("auto": any) with a heartbeat in the last seconds.

        On the machine `host` alone, with at least so many devices, of this `identity` (empty: any), other
        than `besides`; `cordoned`: also workers out of service or not allowed.
        """
        able = alive(within_seconds) & (workers.c.devices >= devices)
        if not cordoned:
            able &= uncordoned() & admitted()
        statement = select(func.count()).select_from(workers).where(able)
        if device != "auto":
            statement = statement.where(serves(device))
        if host is not None:
            statement = statement.where(workers.c.host == host)
        if identity:
            statement = statement.where(workers.c.identity == identity)
        if besides:
            statement = statement.where(workers.c.worker != besides)
        with self._database.reading() as connection:
            return connection.execute(statement).scalar_one()

    def blocked(self, job_id: str, device: str, devices: int, identity: str) -> Blocked:
        """Why shards of a planned job wait, as `lanes.blocked` says."""
        with self._database.reading() as connection:
            return blocked(connection, job_id, device, devices, identity)

    def refused(self) -> dict[str, Refused]:
        """Identities that may take no work, as `identities.refused` says."""
        with self._database.reading() as connection:
            return refused(connection)

    def catalogs(self) -> list[str]:
        """Hashes of the catalogs of recent workers, except of early versions."""
        return [str(one["catalog"]) for one in self._gauges() if "catalog" in one]

    def identities(self) -> dict[str, int]:
        """Recent workers by their code's digest."""
        known = alive() & (workers.c.identity != "")
        counts = select(workers.c.identity, func.count()).where(known).group_by(workers.c.identity)
        with self._database.reading() as connection:
            rows = connection.execute(counts.order_by(workers.c.identity)).all()
        return {row[0]: row[1] for row in rows}

    def containments(self) -> list[ContainmentRecord]:
        """Containment of the evaluators of recent workers that have tried and report it."""
        return [one["containment"] for one in self._gauges() if "containment" in one]

    def pulled(self) -> PulledRecords | None:
        """Pulled weights of recent workers by reference; None: none is online, or one is too old to say."""
        said = self._gauges(serving=True)
        if not said or not all(one.get("weights") is not None for one in said):
            return None
        return {reference: record for one in said for reference, record in one["weights"].items()}

    def libraries(self, within_seconds: float = ONLINE_SECONDS) -> frozenset[str]:
        """The packages of attacks that any recent worker has."""
        said = self._gauges(within_seconds, serving=True)
        return frozenset(name for one in said for name in one.get("libraries", {}))

    def serving(self, device: str) -> list[Gauges]:
        """Gauges of recent workers that may take shards of a device class ("auto": any)."""
        return self._gauges(serving=True, device=device)

    def other_data(self) -> list[str]:
        """Data sets of each recent worker that differ from a plan's."""
        return sorted(said for one in self._gauges() for said in one.get("other_data", []))

    def disagreements(self, within_seconds: float = ONLINE_SECONDS) -> Disagreements:
        """The data sets that recent workers in service have differently."""
        able = alive(within_seconds) & (workers.c.devices > 0) & admitted() & uncordoned()
        with self._database.reading() as connection:
            rows = connection.execute(select(workers).where(able)).all()
        return disagreements((row.name or row.worker, (row.gauges or {}).get("data", {})) for row in rows)

    def unfit(self) -> list[str]:
        """Device classes of recent workers that failed a self-test, and why."""
        said = self._gauges()
        return sorted(f"{device}: {why}" for one in said for device, why in one.get("unfit", {}).items())

    def _gauges(
        self, within_seconds: float = ONLINE_SECONDS, *, serving: bool = False, device: str = "auto"
    ) -> list[Gauges]:
        """Gauges of recent workers; `serving`: workers that may take shards."""
        wanted = alive(within_seconds)
        if serving:
            wanted &= (workers.c.devices > 0) & admitted()
        if device != "auto":
            wanted &= serves(device)
        with self._database.reading() as connection:
            found = connection.execute(select(workers.c.gauges).where(wanted)).scalars()
            return [cast(Gauges, gauges or {}) for gauges in found]

    def out_of_service(self) -> tuple[int, int]:
        """How many workers administrators have cordoned, and how many have cordoned themselves."""
        held = ~uncordoned()
        with self._database.reading() as connection:
            rows = connection.execute(select(workers.c.gauges, held.label("held")).where(alive())).all()
        return (
            sum(bool(row.held) for row in rows),
            sum("cordoned" in (row.gauges or {}) and not row.held for row in rows),
        )

    def online_lately(self, device: str, devices: int = 1, identity: str = "") -> int:
        """`online`, cached for a second, for views."""
        key = (device, devices, identity)
        then, count = self._lately.get(key, (float("-inf"), 0))
        if time.monotonic() - then >= LATELY_SECONDS:
            count = self.online(device, devices=devices, identity=identity)
            self._lately[key] = (time.monotonic(), count)
        return count

    def lead(
        self,
        duty: str,
        worker: str,
        seconds: float,
        dead: Callable[[str], bool],
        silent: DutyRow | None = None,
        mark: ClockMark | None = None,
    ) -> DutyRow:
        """Takes or keeps a duty that one worker does for all, unless another has it.

        `seconds`: announced length; `dead`: whether a worker is certainly gone; `silent`: the duty as it last
        changed, too long ago: taken from that holder, if unchanged. `mark`: kept if the worker has the duty,
        which is returned with the mark from before.
        """
        with self._database.writing() as connection:
            new = own_insert(connection, duties).values(name=duty, worker=worker, until=now() + seconds)
            connection.execute(new.on_conflict_do_nothing())
            holder = connection.execute(select(duties.c.worker).where(duties.c.name == duty)).scalar_one()
            mine = duties.c.worker == worker
            if dead(holder):
                mine |= duties.c.worker == holder
            if silent is not None:
                mine |= (duties.c.worker == silent.worker) & (duties.c.until == silent.until)
            values = {"worker": worker, "until": now() + seconds}
            connection.execute(update(duties).where(duties.c.name == duty, mine).values(values))
            found = _duty(connection, duty)
            if mark is not None and found.worker == worker:
                write_mark(connection, mark)
            return found

    def resign(self, duty: str, worker: str) -> None:
        """Leaves a duty to others, if it is this worker's."""
        with self._database.writing() as connection:
            connection.execute(delete(duties).where(duties.c.name == duty, duties.c.worker == worker))

    def duty(self, name: str) -> DutyRow:
        """A duty as it is now."""
        with self._database.reading() as connection:
            return _duty(connection, name)

    def gone(self, worker: str) -> None:
        """Removes a worker that ends."""
        self.heartbeats.forget(worker)
        self._lately.clear()
        with self._database.writing() as connection:
            connection.execute(delete(workers).where(workers.c.worker == worker))

    def reset_clock(self, jump: float, lease_seconds: float, begun: float, mark: ClockMark) -> None:
        """Puts right what a jump of the clock made wrong: leases, deadlines, charges; keeps `mark`."""
        # Every lease begins again: living workers keep their shards, dead workers lose theirs in time. The
        # clock went `jump` seconds ahead (negative: back); what was written since is right, and was written
        # at `begun` of the new clock or later.
        with self._database.writing() as connection:
            put_right(connection, jump, lease_seconds, begun)
            write_mark(connection, mark)


class Counters(StorePart):
    """Sums by name and labels."""

    def add(self, amounts: Mapping[CounterKey, float]) -> None:
        """Adds to counters from zero; after a lost answer the caller adds twice: fine for monitoring."""
        if not amounts:
            return
        # The same order in all transactions: two must never wait for each other's rows.
        rows = sorted((name, _text(labels), float(value)) for (name, labels), value in amounts.items())
        values = [{"name": name, "labels": labels, "value": value} for name, labels, value in rows]
        with self._database.writing() as connection:
            statement = own_insert(connection, counters)
            added = {"value": counters.c.value + statement.excluded.value}
            key = [counters.c.name, counters.c.labels]
            connection.execute(statement.on_conflict_do_update(index_elements=key, set_=added), values)


def _duty(connection: Connection, name: str) -> DutyRow:
    row = connection.execute(select(duties).where(duties.c.name == name)).one_or_none()
    mark = read_mark(connection)
    present = mark_of(float(connection.execute(select(now())).scalar_one()))
    return DutyRow(present, mark) if row is None else DutyRow(present, mark, row.worker, row.until)


def _text(labels: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(dict(labels), sort_keys=True, separators=(",", ":"))
