"""Input of the choice of the next shard, read without locks, and the resulting accounts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    Row,
    Select,
    bindparam,
    case,
    func,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from assay.service.contract.limits import LIMITS, Limits
from assay.service.contract.states import ShardState
from assay.service.store.clock import now
from assay.service.store.fleet.fair_queue import (
    STATED_SECONDS,
    Lane,
    Standing,
    clock_after,
    lanes_of,
    pool_of,
)
from assay.service.store.fleet.identities import admitted
from assay.service.store.fleet.lanes import read_lanes
from assay.service.store.tables import RUNNING, jobs, shards, workers
from assay.service.store.tenant_tables import accounts, clocks, tenants
from assay.service.store.transactions.transitions import CLAIMABLE

DAY_SECONDS = 86400
KEPT_TEXTS = 64
QUEUED = str(ShardState.QUEUED)
ONLINE_SECONDS = 60
Heads = dict[str, dict[Lane, str]]  # Each tenant's first claimable job, by lane
MOMENT = select(now())
ACCOUNTS = select(accounts.c.tenant, accounts.c.virtual, accounts.c.day, accounts.c.seconds).where(
    accounts.c.pool == bindparam("of"), accounts.c.tenant.in_(bindparam("names", expanding=True))
)


@dataclass(frozen=True)
class Pool:
    """A pool of workers at one moment."""

    name: str  # "cuda", "cpu" or "checks"
    clock: float  # its virtual time
    stored: float | None  # as in the database; None before the first claim
    standings: list[Standing]  # of tenants with queued or running shards
    heads: Heads  # of backlogged tenants
    limits: dict[str, Limits]  # in force, by tenant
    blocked: dict[str, list[str]]  # limits that keep tenants' claimable shards from being claimed


def read_pool(
    connection: Connection,
    devices: Sequence[str],
    count: int,
    defaults: Limits,
    tenant: str | None = None,
    heads: Heads | None = None,
) -> Pool:
    """Reads everything, in a few statements on indices, with or without a transaction.

    `devices`: device classes of the pool; `count`: a worker's devices for a shard. `tenant` is included even
    without shards. `heads` are as `read_heads` has just read them; None: for all online workers.
    """
    pool = pool_of(devices)
    at, clock = connection.exec_driver_sql(_times(connection.dialect, pool)).one()
    if heads is None:
        lanes = lanes_of(devices, online_identities(connection), read_lanes(connection))
        heads = read_heads(connection, lanes, count)
    held: Sequence[Row[Any]] = connection.exec_driver_sql(_running_sums(connection.dialect)).all()
    named = {*heads, *(shard.tenant for shard in held if shard.pool == pool)}
    if tenant is not None:
        named.add(tenant)
    known = _accounts(connection, pool, named)
    standings, limits, blocked = [], {}, {}
    for name in named:
        account = known.get(name)
        limits[name] = limits_of(account, defaults)
        here = next((one for one in held if one.tenant == name and one.pool == pool), None)
        running = 0.0 if here is None else float(here.elapsed)
        used = running + day_seconds(account, at)
        total = sum(one.number for one in held if one.tenant == name)
        reasons = _reasons(limits[name], pool, total, used)
        if reasons and name in heads:
            blocked[name] = reasons
        standings.append(
            Standing(
                name,
                weight_of(account),
                0.0 if account is None or account.virtual is None else account.virtual,
                running,
                0.0 if here is None else float(here.ahead),
                name in heads and not reasons,
                min(heads.get(name, {}).values(), default=""),
            )
        )
    ahead = 0.0
    if not any(one.backlogged for one in standings):
        largest = select(func.max(accounts.c.virtual)).where(accounts.c.pool == pool)
        ahead = connection.execute(largest).scalar() or 0.0
    present = clock_after(clock or 0.0, standings, ahead)
    return Pool(pool, present, clock, standings, heads, limits, blocked)


def read_heads(
    connection: Connection, lanes: Sequence[Lane], count: int, without: Sequence[str] = ()
) -> Heads:
    """A claimer's first claimable job, by tenant and lane."""
    found = {}
    statement = _heads(connection.dialect, tuple(lanes), count, tuple(without))
    for tenant, *firsts in connection.exec_driver_sql(statement):
        jobs_of = {lane: job for lane, job in zip(lanes, firsts, strict=True) if job is not None}
        if jobs_of:
            found[tenant] = jobs_of
    return found


def online_identities(connection: Connection) -> list[str]:
    """The identities of workers with a heartbeat in the last minute that may take work."""
    alive = (workers.c.seen_at >= now() - ONLINE_SECONDS) & admitted()
    known = select(workers.c.identity).where(alive, workers.c.identity != "").distinct()
    return sorted(connection.execute(known).scalars())


# Polls and claims run these statements all the time, and compiling costs most: each is kept as text, for each
# engine. Values are device classes, identities, small integers, ids.


@lru_cache(KEPT_TEXTS)
def _heads(dialect: Dialect, lanes: Sequence[Lane], count: int, without: Sequence[str]) -> str:
    """One step in the claiming index finds each tenant, however long the queues."""
    first = select(func.min(shards.c.tenant).label("tenant")).where(shards.c.state == QUEUED)
    queued = first.cte("queued_tenants", recursive=True)
    later = select(func.min(shards.c.tenant)).where(
        shards.c.state == QUEUED, shards.c.tenant > queued.c.tenant
    )
    following = select(later.scalar_subquery()).where(queued.c.tenant.is_not(None))
    queued = queued.union_all(following)
    columns = [
        first_job(queued.c.tenant, lane, count, without).scalar_subquery().label(f"first_{number}")
        for number, lane in enumerate(lanes)
    ]
    return _text(select(queued.c.tenant, *columns).where(queued.c.tenant.is_not(None)), dialect)


def first_job(tenant: ColumnElement[str], lane: Lane, count: int, without: Sequence[str] = ()) -> Select[Any]:
    """The statement for a tenant's next job in a lane: by priority, then by age."""
    claimable = [str(state) for state in CLAIMABLE]
    own = (shards.c.state == QUEUED) & (shards.c.tenant == tenant) & waits_in(lane)
    if without:
        own &= shards.c.job_id.not_in(without)
    return (
        select(shards.c.job_id)
        .join(jobs, jobs.c.id == shards.c.job_id)
        .where(own, shards.c.devices <= count, jobs.c.state.in_(claimable))
        .order_by(shards.c.precedence, shards.c.job_id)
        .limit(1)
    )


def waits_in(lane: Lane) -> ColumnElement[bool]:
    """Condition: a shard's lane is this one."""
    own = (shards.c.device == lane.device) & (shards.c.identity == lane.identity)
    return own & (shards.c.requirements == lane.requirements)


@lru_cache(KEPT_TEXTS)
def _running_sums(dialect: Dialect) -> str:
    """Number, past and expected device-seconds of running shards, by tenant and pool."""
    at = select(now().label("at")).cte("moment").c.at  # Read once: it costs more than the rest of a row.
    elapsed = case((shards.c.claimed_at < at, at - shards.c.claimed_at), else_=0.0)
    stated = case(*((shards.c.kind == kind, seconds) for kind, seconds in STATED_SECONDS.items()), else_=0.0)
    expected = case(
        (shards.c.kind.in_(STATED_SECONDS), stated), (shards.c.cost > 0, shards.c.cost), else_=0.0
    )
    ahead = case((expected > elapsed, expected - elapsed), else_=0.0)
    columns = (
        func.count().label("number"),
        func.sum(elapsed * shards.c.devices).label("elapsed"),
        func.sum(ahead * shards.c.devices).label("ahead"),
    )
    by = (shards.c.tenant, shards.c.pool)
    return _text(select(*by, *columns).where(RUNNING).group_by(*by), dialect)


@lru_cache(KEPT_TEXTS)
def _times(dialect: Dialect, pool: str) -> str:
    stored = select(clocks.c.virtual).where(clocks.c.pool == pool).scalar_subquery()
    return _text(select(now(), stored), dialect)


@lru_cache(KEPT_TEXTS)
def _configured(dialect: Dialect, pool: str) -> str:
    """All tenants with settings of their own, and their accounts."""
    settings = [tenants.c.name, tenants.c.weight, *(tenants.c[name] for name in LIMITS)]
    mine = (accounts.c.pool == pool) & (accounts.c.tenant == tenants.c.name)
    columns = [accounts.c.tenant, accounts.c.virtual, accounts.c.day, accounts.c.seconds]
    return _text(select(*settings, *columns).select_from(tenants.outerjoin(accounts, mine)), dialect)


def _text(statement: Select[Any], dialect: Dialect) -> str:
    text = str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    return text.replace("%%", "%")


def _elapsed(shard: Row[Any], at: float) -> float:
    if shard.claimed_at is None:
        return 0.0
    return max(0.0, at - float(shard.claimed_at)) * int(shard.devices)


def _accounts(connection: Connection, pool: str, names: Collection[str]) -> dict[str, Row[Any]]:
    """Accounts and settings of tenants that have either."""
    if not names:
        return {}
    found: dict[str, Any] = {
        row.name: row for row in connection.exec_driver_sql(_configured(connection.dialect, pool))
    }
    rest = [name for name in sorted(names) if name not in found]
    if rest:
        found |= {row.tenant: row for row in connection.execute(ACCOUNTS, {"of": pool, "names": rest})}
    return found


def weight_of(row: Row[Any] | None) -> float:
    """The weight in a row of settings; 1 without one."""
    return 1.0 if row is None else float(row._mapping.get("weight") or 1.0)


def limits_of(row: Row[Any] | None, defaults: Limits) -> Limits:
    """The limits in force, from a row of settings or None."""
    if row is None or "weight" not in row._mapping:
        return defaults
    return defaults.overridden({name: row._mapping[name] for name in LIMITS})


def tenant_limits(connection: Connection, tenant: str | None, defaults: Limits) -> Limits:
    """The limits in force for a tenant."""
    found = select(tenants).where(tenants.c.name == (tenant or ""))
    return limits_of(connection.execute(found).one_or_none(), defaults)


def day_seconds(account: Row[Any] | None, at: float) -> float:
    """Device-seconds charged on the present day; `at` is in unix seconds."""
    today = account is not None and account.day is not None and account.day == int(at // DAY_SECONDS)
    return float(account.seconds) if account is not None and today else 0.0


def _reasons(limits: Limits, pool: str, running: int, used: float) -> list[str]:
    reasons = []
    if limits.running_shards and running >= limits.running_shards:
        reasons.append("running_shards")
    if limits.max_day_seconds(pool) and used >= limits.max_day_seconds(pool):
        reasons.append("gpu_seconds" if pool == "cuda" else "cpu_seconds")
    return reasons


def set_clock(connection: Connection, pool: str, virtual: float, *, known: bool) -> None:
    """Sets a pool's clock forward, unless another transaction is doing so: none waits."""
    if not known:
        make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        new: Any = make(clocks).values(pool=pool, virtual=virtual)
        connection.execute(new.on_conflict_do_nothing())
        return
    late = select(clocks.c.pool).where(clocks.c.pool == pool, clocks.c.virtual < virtual)
    free = late.with_for_update(skip_locked=True)
    connection.execute(update(clocks).where(clocks.c.pool.in_(free)).values(virtual=virtual))


def lift(connection: Connection, tenant: str, pool: str, virtual: float) -> None:
    """Raises an account to a virtual time, unless it is past that."""
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    new: Any = make(accounts).values(tenant=tenant, pool=pool, virtual=virtual, day=0, seconds=0.0)
    key = [accounts.c.tenant, accounts.c.pool]
    higher = accounts.c.virtual < virtual
    connection.execute(new.on_conflict_do_update(index_elements=key, set_={"virtual": virtual}, where=higher))


def running_shards(job_id: str) -> Select[Any]:
    """The statement for the shards of a job that workers hold."""
    return select(shards).where(shards.c.job_id == job_id, RUNNING)
