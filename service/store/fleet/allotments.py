"""Weights and limits of tenants, and where a tenant stands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal

from sqlalchemy import Connection, func, select, union

from assay.service.contract.limits import (
    LIMITS,
    Limits,
    LimitStatus,
    QueueStatus,
    QuotaStatus,
    TenantSettings,
    limit_values,
)
from assay.service.contract.states import ShardState
from assay.service.contract.times import iso_or_none
from assay.service.store.audit import Actor, record
from assay.service.store.clock import now
from assay.service.store.columns import upsert
from assay.service.store.database import Database, StorePart
from assay.service.store.fleet.fair_queue import Standing, before, expected_seconds, lanes_of
from assay.service.store.fleet.quotas import Quota, held_checkpoints, in_flight, queued_jobs, stored_bytes
from assay.service.store.tables import RUNNING, jobs, shards
from assay.service.store.tenant_tables import accounts, api_keys, tenants
from assay.service.store.transactions.standings import (
    DAY_SECONDS,
    day_seconds,
    limits_of,
    read_pool,
    weight_of,
)
from assay.service.store.transactions.transitions import CLAIMABLE

PoolName = Literal["cpu", "cuda"]
# Pools of workers, and the device classes of a worker in each.
POOLS: dict[PoolName, Sequence[str]] = {"cpu": ("cpu",), "cuda": ("cuda", "cpu")}
MAX_DEVICES = 64
NOMINAL_SECONDS = 240.0
LATELY_SECONDS = 1.0


class Allotments(StorePart):
    """The tenants' settings and usage."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._lately: dict[str, tuple[float, list[str]]] = {}

    def settings(self, tenant: str) -> TenantSettings:
        """The settings of a tenant; the defaults for an unknown tenant."""
        with self._database.reading() as connection:
            row = connection.execute(select(tenants).where(tenants.c.name == tenant)).one_or_none()
        return TenantSettings() if row is None else _settings(row)

    def set(self, tenant: str, settings: TenantSettings, *, by: Actor | None = None) -> None:
        """Replaces all settings of a tenant, which need not have keys or jobs yet; `by` None: no audit."""
        values = {"name": tenant, **settings.model_dump(), "updated_at": now()}
        with self._database.writing() as connection:
            upsert(connection, tenants, values)
            record(connection, by, "tenant.change", tenant, detail=settings.model_dump(exclude_none=True))
        self._lately.clear()

    def all(self) -> dict[str, TenantSettings]:
        """The settings of all tenants that have settings or a key, by name."""
        names = union(select(tenants.c.name), select(api_keys.c.tenant))
        with self._database.reading() as connection:
            rows = {row.name: _settings(row) for row in connection.execute(select(tenants))}
            found = sorted(connection.execute(names).scalars())
        return {name: rows.get(name, TenantSettings()) for name in found}

    def delays(self, tenant: str | None, defaults: Limits) -> list[str]:
        """The limits that keep a tenant's claimable shards from being claimed, at most a second ago."""
        owner = tenant or ""
        then, reasons = self._lately.get(owner, (float("-inf"), []))
        if time.monotonic() - then >= LATELY_SECONDS:
            with self._database.reading() as connection:
                reasons = _delays(connection, owner, defaults)
            self._lately[owner] = (time.monotonic(), reasons)
        return reasons

    def of(self, tenant: str | None, defaults: Limits, checkpoints: Quota) -> QuotaStatus:
        """Where a tenant stands; None is the tenant of a service without keys."""
        owner = tenant or ""
        with self._database.reading() as connection:
            row = connection.execute(select(tenants).where(tenants.c.name == owner)).one_or_none()
            return QuotaStatus(
                tenant=owner,
                weight=weight_of(row),
                limits=_uses(connection, tenant, limits_of(row, defaults), checkpoints),
                queue=[_place(connection, owner, pool, defaults) for pool in POOLS],
                delayed_by=_delays(connection, owner, defaults),
            )


def _settings(row: Any) -> TenantSettings:
    return TenantSettings(weight=row.weight, **{name: row._mapping[name] for name in LIMITS})


def _delays(connection: Connection, owner: str, defaults: Limits) -> list[str]:
    row = connection.execute(select(tenants).where(tenants.c.name == owner)).one_or_none()
    limits = limits_of(row, defaults)
    reasons: list[str] = []
    if not (limits.running_shards or limits.gpu_seconds or limits.cpu_seconds):
        return reasons
    for devices in POOLS.values():
        blocked = read_pool(connection, devices, MAX_DEVICES, defaults, owner).blocked
        reasons += [reason for reason in blocked.get(owner, []) if reason not in reasons]
    return reasons


def _uses(connection: Connection, tenant: str | None, limits: Limits, quota: Quota) -> dict[str, LimitStatus]:
    owner, values = tenant or "", limit_values(limits)
    at = float(connection.execute(select(now())).scalar_one())
    midnight = (int(at // DAY_SECONDS) + 1) * DAY_SECONDS
    mine = connection.execute(select(accounts).where(accounts.c.tenant == owner)).all()
    charged = {row.pool: day_seconds(row, at) for row in mine}
    held = (shards.c.tenant == owner) & RUNNING
    running = connection.execute(
        select(shards.c.pool, shards.c.claimed_at, shards.c.devices).where(held)
    ).all()
    for shard in running:
        if shard.pool is not None and shard.claimed_at is not None:
            more = max(0.0, at - shard.claimed_at) * shard.devices
            charged[shard.pool] = charged.get(shard.pool, 0.0) + more
    uploads, reserved = in_flight(connection, tenant)
    count, size = held_checkpoints(connection, tenant)
    return {
        "queued_jobs": _use(values["queued_jobs"], queued_jobs(connection, tenant)),
        "running_shards": _use(values["running_shards"], len(running)),
        "gpu_seconds": _use(values["gpu_seconds"], round(charged.get("cuda", 0.0)), midnight),
        "cpu_seconds": _use(values["cpu_seconds"], round(charged.get("cpu", 0.0)), midnight),
        "stored_bytes": _use(values["stored_bytes"], stored_bytes(connection, tenant) + reserved),
        "uploads": _use(values["uploads"], uploads),
        "checkpoints": _use(quota.count, count + uploads),
        "checkpoint_bytes": _use(quota.size, size + reserved),
    }


def _use(limit: int, used: int, resets_at: float | None = None) -> LimitStatus:
    """A limit, 0 for none, and what is used of it."""
    left = max(0, limit - used) if limit else None
    return LimitStatus(limit=limit or None, used=used, left=left, resets_at=iso_or_none(resets_at))


def _place(connection: Connection, owner: str, name: PoolName, defaults: Limits) -> QueueStatus:
    devices = POOLS[name]
    pool = read_pool(connection, devices, MAX_DEVICES, defaults, owner)
    claimable = [str(state) for state in CLAIMABLE]
    own = (shards.c.tenant == owner) & shards.c.device.in_([lane.device for lane in lanes_of(devices)])
    counting = (
        select(func.count())
        .select_from(shards.join(jobs, jobs.c.id == shards.c.job_id))
        .where(own, shards.c.state == str(ShardState.QUEUED), jobs.c.state.in_(claimable))
    )
    held = RUNNING & (shards.c.pool == name)
    running = connection.execute(select(shards.c.tenant, shards.c.kind, shards.c.cost).where(held)).all()
    lengths = [expected_seconds(shard.kind, shard.cost) for shard in running]
    mine = next((one for one in pool.standings if one.tenant == owner), Standing(owner))
    weights = sum(one.weight for one in pool.standings if one.backlogged and one.tenant != owner)
    return QueueStatus(
        device=name,
        queued=int(connection.execute(counting).scalar_one()),
        running=sum(shard.tenant == owner for shard in running),
        before=before(pool.clock, pool.standings, owner, max(fmean(lengths or [NOMINAL_SECONDS]), 1.0)),
        share=round(mine.weight / (mine.weight + weights), 4),
    )
