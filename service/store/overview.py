"""Overview of jobs, shards and workers for monitoring, cheap for any number: ended shards are not read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import CompoundSelect, Connection, Select, func, literal, select, union_all

from assay.service.contract.fleet.worker_records import Gauges
from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.database import Database
from assay.service.store.fleet.demand import refused_code
from assay.service.store.fleet.identities import admitted, alive
from assay.service.store.fleet.workers import CounterKey
from assay.service.store.ids import created_at
from assay.service.store.tables import QUEUED, RUNNING, cordons, counters, jobs, shards, workers
from assay.service.store.transactions.transitions import CLAIMABLE

WITHHELD = "withheld"  # Queued for code that may take no work
MAX_QUEUES = 50  # of tenants, so that a monitor does not drown in series


@dataclass(frozen=True)
class WorkerRow:
    """A worker with a heartbeat in the last minute."""

    worker: str
    host: str
    device_classes: tuple[str, ...]  # all that it serves
    devices: int  # that it has for one shard; 0: it takes none
    pid: int
    gauges: Gauges  # its own measurements
    in_service: bool = True  # it has devices, its code may take work, and it is not cordoned
    cordoned: bool = False  # by an administrator
    unknown: bool = False  # whether its code may take no work


@dataclass(frozen=True)
class TenantQueue:
    """Queued jobs of a tenant, and the age of the oldest in seconds."""

    tenant: str
    jobs: int
    oldest_seconds: float


@dataclass(frozen=True)
class Overview:
    """One moment."""

    jobs: Mapping[str, int]  # by state, without empty states
    # By device class and state: running, queued, and `WITHHELD` apart; no waiting jobs.
    shards: Mapping[tuple[str, str], int]
    oldest_queued_seconds: float  # age of the first queued job; 0 without one
    longest_queued_seconds: float  # the longest wait of a queued shard; 0 without any
    slowest_seconds: float  # the longest time of a running shard without progress; 0 without any
    workers: tuple[WorkerRow, ...]
    counters: Mapping[CounterKey, float]  # sums by name and labels
    queues: tuple[TenantQueue, ...] = ()  # by tenant, longest first; an empty name is jobs without a tenant


def read(database: Database) -> Overview:
    """Reads everything in one transaction."""
    with database.reading() as connection:
        return Overview(
            jobs={row.state: row.number for row in connection.execute(jobs_by_state()) if row.number},
            shards=_shards(connection),
            oldest_queued_seconds=_seconds(connection, oldest_queued()),
            longest_queued_seconds=_seconds(connection, longest_queued()),
            slowest_seconds=_seconds(connection, slowest_running()),
            workers=_workers(connection),
            counters={_key(row): row.value for row in connection.execute(select(counters))},
            queues=_queues(connection),
        )


def online_workers(database: Database) -> tuple[WorkerRow, ...]:
    """Workers with a heartbeat in the last minute, by id."""
    with database.reading() as connection:
        return _workers(connection)


def job_counts(database: Database, tenant: str | None = None) -> dict[str, int]:
    """Number of jobs by state, as lists have them: without checks of weights, without empty states.

    `tenant`: of this tenant alone.
    """
    mine = [] if tenant is None else [jobs.c.tenant == tenant]
    checks = select(jobs.c.state, func.count().label("number")).where(jobs.c.kind == "check", *mine)
    with database.reading() as connection:
        hidden = {row.state: row.number for row in connection.execute(checks.group_by(jobs.c.state))}
        found = connection.execute(jobs_by_state(tenant)).all()
        counts = {row.state: row.number - hidden.get(row.state, 0) for row in found}
        return {state: number for state, number in counts.items() if number > 0}


def jobs_by_state(tenant: str | None = None) -> CompoundSelect[Any]:
    """The statement that counts jobs: state by state, as PostgreSQL would not use the index to group them."""
    mine = [] if tenant is None else [jobs.c.tenant == tenant]
    return union_all(
        *(
            select(literal(state.value).label("state"), func.count().label("number"))
            .select_from(jobs)
            .where(jobs.c.state == state.value, *mine)
            for state in JobState
        )
    )


def shards_by_device() -> Select[Any]:
    """The statement that counts queued and running shards, also by identity, from an index alone."""
    wanted = [str(ShardState.QUEUED), str(ShardState.RUNNING)]
    by = (shards.c.device, shards.c.state, shards.c.identity)
    return select(*by, func.count().label("number")).where(shards.c.state.in_(wanted)).group_by(*by)


def waiting_shards() -> Select[Any]:
    """The statement that counts the queued shards of waiting jobs: one each."""
    waiting = (jobs.c.state == str(JobState.WAITING)) & QUEUED
    counted = select(shards.c.device, func.count().label("number"))
    return counted.join(jobs, jobs.c.id == shards.c.job_id).where(waiting).group_by(shards.c.device)


def oldest_queued() -> Select[Any]:
    """The statement for the age of the first queued job; ids have the order of creation."""
    queued = jobs.c.state == str(JobState.QUEUED)
    return select(now() - jobs.c.created_at).where(queued).order_by(jobs.c.id).limit(1)


def longest_queued() -> Select[Any]:
    """The statement for the longest wait of a queued shard, without shards of waiting jobs."""
    claimable = jobs.c.state.in_([str(state) for state in CLAIMABLE])
    first = select(now() - shards.c.queued_at).join(jobs, jobs.c.id == shards.c.job_id)
    known = shards.c.queued_at.is_not(None)
    return first.where(QUEUED, known, claimable).order_by(shards.c.queued_at).limit(1)


def slowest_running() -> Select[Any]:
    """The statement for the longest time of a running shard without progress."""
    return select(now() - func.min(shards.c.progressed_at)).where(RUNNING)


def tenant_queues() -> Select[Any]:
    """The statement that counts queued jobs by tenant, from an index alone."""
    queued = jobs.c.state == str(JobState.QUEUED)
    number = func.count().label("number")
    grouped = select(jobs.c.tenant, number, func.min(jobs.c.id).label("first")).where(queued)
    return grouped.group_by(jobs.c.tenant).order_by(number.desc(), jobs.c.tenant).limit(MAX_QUEUES)


def _shards(connection: Connection) -> dict[tuple[str, str], int]:
    queued, rows = str(ShardState.QUEUED), connection.execute(shards_by_device()).all()
    refused = refused_code(connection, (row.identity for row in rows if row.state == queued))
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        withheld = row.state == queued and row.identity in refused
        found[row.device, WITHHELD if withheld else row.state] += row.number
    for row in connection.execute(waiting_shards()):
        found[row.device, queued] -= row.number
    return {key: number for key, number in found.items() if number > 0}


def _seconds(connection: Connection, statement: Select[Any]) -> float:
    return max(0.0, connection.execute(statement).scalar() or 0.0)


def _queues(connection: Connection) -> tuple[TenantQueue, ...]:
    rows = connection.execute(tenant_queues()).all()
    at = connection.execute(select(now())).scalar_one()
    return tuple(
        TenantQueue(row.tenant or "", row.number, max(0.0, at - created_at(row.first))) for row in rows
    )


def _workers(connection: Connection) -> tuple[WorkerRow, ...]:
    held = workers.c.name.in_(select(cordons.c.name)).label("held")
    statement = select(workers, held, admitted().label("admitted")).where(alive()).order_by(workers.c.worker)
    return tuple(
        WorkerRow(
            worker=row.worker,
            host=row.host,
            device_classes=tuple(filter(None, row.device_classes.split(","))),
            devices=row.devices,
            pid=row.pid,
            gauges=row.gauges or Gauges(),
            in_service=bool(row.devices > 0 and not row.held and row.admitted),
            cordoned=bool(row.held),
            unknown=not row.admitted,
        )
        for row in connection.execute(statement)
    )


def _key(row: Any) -> CounterKey:
    return row.name, tuple(sorted(json.loads(row.labels).items()))
