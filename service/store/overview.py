"""Overview of jobs, shards and workers for monitoring. Cheap for any number of jobs.

Jobs are counted from an index alone. Shards are counted from those that are queued or running: the ones that
have ended, by far the most, are not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import CompoundSelect, Connection, Select, func, literal, select, union_all

from assay.service.contract.records import Gauges
from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.database import Database
from assay.service.store.ids import created_at
from assay.service.store.tables import counters, jobs, shards, workers
from assay.service.store.transactions.transitions import OPEN
from assay.service.store.workers import Key

ONLINE_SECONDS = 60.0
# Tenants whose queues are reported, so that a monitor does not drown in series.
MAX_QUEUES = 50


@dataclass(frozen=True)
class WorkerRow:
    """A worker with a heartbeat in the last minute.

    Attributes:
        device_classes: all that it serves.
        gauges: its own measurements.
    """

    worker: str
    host: str
    device_classes: tuple[str, ...]
    pid: int
    gauges: Gauges


@dataclass(frozen=True)
class TenantQueue:
    """Queued jobs of a tenant, and the age of the oldest in seconds."""

    tenant: str
    jobs: int
    oldest_seconds: float


@dataclass(frozen=True)
class Overview:
    """One moment.

    Attributes:
        jobs: their number by state, without empty states.
        shards: number in open jobs, by device class and state, queued or running.
        oldest_queued_seconds: age of the first queued job; 0 without one.
        queues: those of the tenants with the longest, longest first; empty names those without tenant.
        counters: sums by name and labels.
    """

    jobs: Mapping[str, int]
    shards: Mapping[tuple[str, str], int]
    oldest_queued_seconds: float
    workers: tuple[WorkerRow, ...]
    counters: Mapping[Key, float]
    queues: tuple[TenantQueue, ...] = ()


def read(database: Database) -> Overview:
    """Reads everything in one transaction."""
    with database.reading() as connection:
        return Overview(
            jobs={row.state: row.number for row in connection.execute(jobs_by_state()) if row.number},
            shards={(row.device, row.state): row.number for row in connection.execute(shards_by_device())},
            oldest_queued_seconds=max(0.0, connection.execute(oldest_queued()).scalar() or 0.0),
            workers=_workers(connection),
            counters={_key(row): row.value for row in connection.execute(select(counters))},
            queues=_queues(connection),
        )


def online_workers(database: Database) -> tuple[WorkerRow, ...]:
    """Workers with a heartbeat in the last minute, by id."""
    with database.reading() as connection:
        return _workers(connection)


def job_counts(database: Database, tenant: str | None = None) -> dict[str, int]:
    """Number of jobs by state, without empty states; with a tenant, those of that tenant."""
    with database.reading() as connection:
        found = connection.execute(jobs_by_state(tenant))
        return {row.state: row.number for row in found if row.number}


def jobs_by_state(tenant: str | None = None) -> CompoundSelect[Any]:
    """The statement that counts jobs; with a tenant, those of that tenant.

    State by state: grouped by state, PostgreSQL would read all rows, with their specs, and not the index.
    """
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
    """The statement that counts the shards of jobs that have not ended, without those of waiting jobs."""
    at_work = [str(state) for state in OPEN - {JobState.WAITING}]
    wanted = [str(ShardState.QUEUED), str(ShardState.RUNNING)]
    return (
        select(shards.c.device, shards.c.state, func.count().label("number"))
        .join(jobs, jobs.c.id == shards.c.job_id)
        .where(shards.c.state.in_(wanted), jobs.c.state.in_(at_work))
        .group_by(shards.c.device, shards.c.state)
    )


def oldest_queued() -> Select[Any]:
    """The statement that finds the age of the first queued job; ids have the order of creation."""
    queued = jobs.c.state == str(JobState.QUEUED)
    return select(now() - jobs.c.created_at).where(queued).order_by(jobs.c.id).limit(1)


def tenant_queues() -> Select[Any]:
    """The statement that counts queued jobs by tenant, from an index alone."""
    queued = jobs.c.state == str(JobState.QUEUED)
    number = func.count().label("number")
    grouped = select(jobs.c.tenant, number, func.min(jobs.c.id).label("first")).where(queued)
    return grouped.group_by(jobs.c.tenant).order_by(number.desc(), jobs.c.tenant).limit(MAX_QUEUES)


def _queues(connection: Connection) -> tuple[TenantQueue, ...]:
    rows = connection.execute(tenant_queues()).all()
    at = connection.execute(select(now())).scalar_one()
    return tuple(
        TenantQueue(row.tenant or "", row.number, max(0.0, at - created_at(row.first))) for row in rows
    )


def _workers(connection: Connection) -> tuple[WorkerRow, ...]:
    statement = select(workers).where(workers.c.seen_at >= now() - ONLINE_SECONDS).order_by(workers.c.worker)
    return tuple(
        WorkerRow(
            worker=row.worker,
            host=row.host,
            device_classes=tuple(filter(None, row.device_classes.split(","))),
            pid=row.pid,
            gauges=row.gauges or Gauges(),
        )
        for row in connection.execute(statement)
    )


def _key(row: Any) -> Key:
    return row.name, tuple(sorted(json.loads(row.labels).items()))
