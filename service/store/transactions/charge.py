"""Charging claims that have ended: to the account of a tenant, and to the ledger of device-seconds.

An entry of the ledger is of a job, a pool and a day; whole milliseconds, so that sums are exact:

    milliseconds = starts + lost + repeated + what measured or trained

`starts`: until an evaluator measured, and after; `lost`: of claims without an outcome, and of outcomes that a
new plan has voided; `repeated`: of shards that were computed again as a proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Double, Row, bindparam, case, exists, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from assay.service.store.tables import shards, tags
from assay.service.store.tenant_tables import accounts, deleted_tags, tenants, usage
from assay.service.store.transactions.standings import DAY_SECONDS, MOMENT

ALL = float("inf")
LOST = (
    update(shards)
    .where(shards.c.id == bindparam("shard"))
    .values(lost=bindparam("charged"), lost_day=bindparam("at"))
)


def charge(
    connection: Connection,
    job: Row[Any],
    ended: Sequence[Row[Any]],
    *,
    measured: float | None = None,
    retaken: bool = False,
) -> None:
    """Charges a job's tenant for shards that have just stopped running. The last statement of a transaction.

    `measured`: seconds of an outcome that is kept, `ALL` for all of the claim, None without an outcome.
    `retaken`: the claim was charged as lost before.
    """
    # The rows were read before the shards were moved, under their job's lock: each claim is charged once. A
    # dead worker's claim is charged until its lease ended: the device was taken. No transaction waits for a
    # job's lock while it holds an account: no deadlock.
    held = [shard for shard in ended if shard.claimed_at is not None and shard.pool is not None]
    if not held:
        return
    at, dialect = float(connection.execute(MOMENT).scalar_one()), connection.dialect.name
    day, tenant = int(at // DAY_SECONDS), job.tenant or ""
    for pool in sorted({shard.pool for shard in held}):
        mine = [shard for shard in held if shard.pool == pool]
        entries = [_entry(shard, at, measured, retaken) for shard in mine]
        sums = {name: sum(entry[name] for entry in entries) for name in entries[0]}
        facts = {"job_id": job.id, "kind": job.kind, "study_id": job.study_id}
        place = {"tenant": tenant, "pool": pool, "day": day}
        connection.execute(_entered(dialect), {**facts, **place, **sums})
        if measured is None:
            pairs = zip(mine, entries, strict=True)
            charges = [{"shard": shard.id, "charged": entry["lost"], "at": day} for shard, entry in pairs]
            connection.execute(LOST, charges)
        elif retaken:
            for shard in mine:
                _take_off(connection, shard, measured)
        seconds = sum(_elapsed(shard, at) for shard in mine)
        charged = {"seconds": seconds, "owner": tenant, "spent": seconds}
        connection.execute(_charged(dialect), {**place, **charged})


def _elapsed(shard: Row[Any], at: float) -> float:
    """Device-seconds of a claim."""
    return max(0.0, min(at, shard.lease_until or at) - float(shard.claimed_at)) * int(shard.devices)


def _entry(shard: Row[Any], at: float, measured: float | None, retaken: bool) -> Mapping[str, int]:
    elapsed = round(_elapsed(shard, at) * 1000)
    starts = lost = 0
    if shard.kind == "repeat" and measured is not None:
        return {"milliseconds": elapsed, "starts": 0, "lost": 0, "repeated": elapsed}
    if measured is not None:
        work = measured * int(shard.devices) * 1000
        known = min(elapsed, round(min(work, 1e15))) if work > 0 else 0  # A worker's word, maybe NaN.
        starts = 0 if retaken else elapsed - known
    else:
        saved = shard.saved_at if shard.saved_at is not None and shard.saved_at > shard.claimed_at else None
        kept = 0 if saved is None else round((saved - shard.claimed_at) * int(shard.devices) * 1000)
        lost = max(0, elapsed - kept)
    return {"milliseconds": elapsed, "starts": starts, "lost": lost, "repeated": 0}


def _take_off(connection: Connection, shard: Row[Any], measured: float) -> None:
    """Takes what a late outcome measured off the loss that its claim was charged."""
    work = measured * int(shard.devices) * 1000
    if not (shard.lost and work > 0):  # A worker's word, maybe NaN.
        return
    kept = min(int(shard.lost), round(min(work, 1e15)))
    mine = (usage.c.job_id == shard.job_id) & (usage.c.pool == shard.pool) & (usage.c.day == shard.lost_day)
    changed = {"lost": usage.c.lost - kept}
    if shard.kind == "repeat":
        changed["repeated"] = usage.c.repeated + kept
    connection.execute(update(usage).where(mine).values(changed))


@lru_cache
def _entered(dialect: str) -> Any:
    """The statement that adds to an entry of the ledger, for an engine."""
    new: Any = (sqlite if dialect == "sqlite" else postgresql).insert(usage)
    names = ("milliseconds", "starts", "lost", "repeated")
    added = {name: usage.c[name] + new.excluded[name] for name in names}
    return new.on_conflict_do_update(index_elements=[usage.c.job_id, usage.c.pool, usage.c.day], set_=added)


@lru_cache
def _charged(dialect: str) -> Any:
    """The statement that adds to an account, for an engine."""
    weight = select(tenants.c.weight).where(tenants.c.name == bindparam("owner")).scalar_subquery()
    share = bindparam("spent", type_=Double) / func.coalesce(weight, 1.0)
    new: Any = (sqlite if dialect == "sqlite" else postgresql).insert(accounts).values(virtual=share)
    same = accounts.c.day == new.excluded.day
    added = {
        "virtual": accounts.c.virtual + new.excluded.virtual,
        "day": new.excluded.day,
        "seconds": case((same, accounts.c.seconds + new.excluded.seconds), else_=new.excluded.seconds),
    }
    return new.on_conflict_do_update(index_elements=[accounts.c.tenant, accounts.c.pool], set_=added)


def void(connection: Connection, job_id: str) -> None:
    """Counts as lost what measured outcomes that a new plan gives up."""
    lost = usage.c.milliseconds - usage.c.starts - usage.c.repeated
    connection.execute(update(usage).where(usage.c.job_id == job_id).values(lost=lost))


def keep_tags(connection: Connection, job_id: str, *, running: bool) -> None:
    """Keeps the tags of a job that is about to be deleted beside its entries of the ledger."""
    mine = select(tags.c.tag, tags.c.job_id).where(tags.c.job_id == job_id)
    if not running:
        mine = mine.where(exists().where(usage.c.job_id == job_id))
    connection.execute(insert(deleted_tags).from_select(["tag", "job_id"], mine))
