"""Transactions of the calls that a fleet makes most: what belongs to a call is read and written together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, literal, select

from assay.service.store.columns import PlainText
from assay.service.store.database import Database, StorePart
from assay.service.store.fleet.cordons import Cordon, cordon_of
from assay.service.store.fleet.heartbeats import SignOfLife
from assay.service.store.fleet.identities import standing_of
from assay.service.store.fleet.lanes import OpenLane, open_lanes
from assay.service.store.fleet.workers import Workers
from assay.service.store.rows import Claim
from assay.service.store.shards import PLANNED_NOW, RenewalVerdict, planned_for, renew
from assay.service.store.tables import RUNNING, cordons, identities, shards

# What standings hang on beside lanes: each change of it, for whatever worker, is a change of a mark.
PLANNING = (shards.c.kind == "plan") & RUNNING
MARKS = [
    asked.scalar_subquery().label(f"mark_{number}")
    for number, asked in enumerate(
        [
            select(func.count(cordons.c.name)),
            select(func.max(cordons.c.since)),
            select(func.count(identities.c.name)),
            select(func.max(identities.c.since)),
            select(func.count(shards.c.id)).where(PLANNING),
            select(func.max(shards.c.claimed_at)).where(PLANNING),
        ]
    )
]
MARKED = select(*MARKS)
ROW = select(literal(1).label("one")).subquery()  # Whether or not the worker is cordoned
STANDING = select(
    standing_of(bindparam("digest", type_=PlainText)).label("refused"),
    exists(PLANNED_NOW).label("planning"),
    cordons,
    *MARKS,
).select_from(ROW.outerjoin(cordons, cordons.c.name == bindparam("worker", type_=PlainText)))


@dataclass(frozen=True)
class WorkerStanding:
    """What a worker must know before it asks for a shard."""

    cordon: Cordon | None
    admitted: bool
    lanes: list[OpenLane]
    planning: bool  # whether it could soon claim shards of a job that is being planned
    marks: tuple[Any, ...] = field(default=(), compare=False)  # `MARKS` at that moment

    @cached_property
    def version(self) -> str:
        """The version of its lanes."""
        return version_of(self.lanes)


class WorkerTransactions(StorePart):
    """Calls of workers about themselves and their leases; `workers`: the store's."""

    def __init__(self, database: Database, workers: Workers) -> None:
        super().__init__(database)
        self._workers = workers

    def standing(
        self, name: str, identity: str, device_classes: Sequence[str], sign: SignOfLife | None = None
    ) -> WorkerStanding:
        """How a worker stands, after its sign of life, if any: its release may admit it."""
        database = self._database
        with database.reading() if sign is None else database.writing() as connection:
            if sign is not None:
                self._workers.note(connection, sign)
            return read_standing(connection, name, identity, device_classes)

    def lanes_and_marks(self) -> tuple[list[OpenLane], tuple[Any, ...]]:
        """The open lanes, and `MARKS`: while both are equal, each worker stands as before."""
        with self._database.reading() as connection:
            return open_lanes(connection), tuple(connection.execute(MARKED).one())

    def renew(
        self, claim: Claim, lease_seconds: float, name: str, sign: SignOfLife
    ) -> tuple[RenewalVerdict, Cordon | None]:
        """Extends a lease and records a sign of life; the verdict, and the worker's cordon."""
        with self._database.writing() as connection:
            verdict = renew(connection, claim, lease_seconds)
            self._workers.note(connection, sign)
            return verdict, cordon_of(connection, name)


def version_of(opened: Sequence[OpenLane]) -> str:
    """A version of the open lanes, which changes with them."""
    text = "\n".join(sorted("\t".join(one.lane) for one in opened))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_standing(
    connection: Connection, name: str, identity: str, device_classes: Sequence[str]
) -> WorkerStanding:
    """How a worker stands, in two statements."""
    asked = {"worker": name, "digest": identity, **planned_for(device_classes)}
    row = connection.execute(STANDING, asked).one()
    held = None if row.name is None else Cordon(row.name, row.drain, row.by_whom, row.since)
    marks = tuple(row[-len(MARKS) :])
    return WorkerStanding(held, not row.refused, open_lanes(connection), row.planning, marks)
