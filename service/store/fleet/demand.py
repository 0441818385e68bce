"""Queued shards that a worker which starts now may take: who starts workers starts none for others.

Planned shards are for the code of their planner. Where that code may take no work, as after an upgrade, they
wait for a new plan or for an administrator, however many workers start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from assay.service.contract.limits import Limits
from assay.service.store.columns import PlainText
from assay.service.store.fleet.fair_queue import pool_of
from assay.service.store.fleet.identities import DECLARED, standing_of
from assay.service.store.tables import QUEUED, RUNNING, identities, jobs, shards
from assay.service.store.transactions.standings import read_pool
from assay.service.store.transactions.transitions import CLAIMABLE

SOURCE_LENGTH = 64  # Of a declared release with a known source; others are a commit or a version


@dataclass(frozen=True)
class Demand:
    """Queued shards: `claimable`, and `withheld` by other code or by a limit of their tenant."""

    claimable: int
    withheld: int


def demand_of(
    connection: Connection, device: str, devices: int, code: str | None, defaults: Limits
) -> Demand:
    """The demand for workers of a device class with so many devices.

    `code`: their identity; empty for unknown, None for one that may take no work.
    """
    rows = _queued(connection, device, devices)
    refused = refused_code(connection, (row.identity for row in rows)) if code == "" else frozenset()
    fitting: dict[str, int] = {}
    for row in rows:
        mine = row.identity in ("", code) if code else code == "" and row.identity not in refused
        fitting[row.tenant] = fitting.get(row.tenant, 0) + row.number * mine
    claimable = _within_limits(connection, device, devices, fitting, defaults)
    return Demand(claimable, sum(row.number for row in rows) - claimable)


def _queued(connection: Connection, device: str, devices: int) -> list[Any]:
    claimable = jobs.c.state.in_([str(state) for state in CLAIMABLE])
    mine = QUEUED & shards.c.device.in_(["auto", device]) & (shards.c.devices <= devices)
    by = (shards.c.tenant, shards.c.identity)
    counted = select(*by, func.count().label("number")).select_from(
        shards.join(jobs, jobs.c.id == shards.c.job_id)
    )
    return [*connection.execute(counted.where(claimable, mine).group_by(*by))]


def _within_limits(
    connection: Connection, device: str, devices: int, queued: dict[str, int], defaults: Limits
) -> int:
    if not queued:
        return 0
    classes = ["cuda", "cpu"] if device == "cuda" else [device]
    heads: Any = {tenant: {} for tenant in queued}
    pool = read_pool(connection, classes, devices, defaults, heads=heads)
    assert pool.name == pool_of(classes)
    held = select(shards.c.tenant, func.count().label("number")).where(RUNNING).group_by(shards.c.tenant)
    running = {row.tenant: row.number for row in connection.execute(held)}
    claimable = 0
    for tenant, number in queued.items():
        most = pool.limits[tenant].running_shards
        room = max(0, most - running.get(tenant, 0)) if most else number
        claimable += 0 if tenant in pool.blocked else min(number, room)
    return claimable


def refused_code(connection: Connection, digests: Iterable[str]) -> frozenset[str]:
    """The identities of planned queued shards that may take no work; empty: none is of other code."""
    return frozenset(digest for digest in {*digests} - {""} if not _may_work(connection, digest))


def _may_work(connection: Connection, digest: str) -> bool:
    verdict: Any = connection.execute(_standing(), {"digest": digest}).scalar_one()
    if verdict != "unknown":
        return bool(verdict == "")
    # No worker of this code is online, which would state its release: the plan has its source.
    planned = select(jobs.c.plan).join(shards, shards.c.job_id == jobs.c.id)
    plan = connection.execute(planned.where(QUEUED, shards.c.identity == digest).limit(1)).scalar() or {}
    source = plan.get("identity", {}).get("source_sha256")
    declared = select(identities.c.name).where(identities.c.verdict == DECLARED)
    sources = [name for name in connection.execute(declared).scalars() if len(name) == SOURCE_LENGTH]
    return source is None or not sources or source in sources


@cache
def _standing() -> Select[tuple[str]]:
    return select(standing_of(bindparam("digest", type_=PlainText)))
