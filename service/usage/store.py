"""Sums over the ledger of device-seconds, and over claims that run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    FromClause,
    Row,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    union_all,
)

from assay.service.store.clock import now
from assay.service.store.ids import decode_cursor, encode_cursor, foreign_cursor
from assay.service.store.tables import RUNNING, jobs, shards, studies, tags
from assay.service.store.tenant_tables import deleted_tags, usage
from assay.service.store.tenants import TenantPart
from assay.service.usage.wire import UsageBy

DAYS = 30  # that are told unless others are asked for
EPOCH = date(1970, 1, 1)
PARTS = ("milliseconds", "starts", "lost", "repeated", "running")
SUMS = tuple(f"{pool}_{part}" for pool in ("gpu", "cpu") for part in PARTS)
CURSOR = r'\["(job|tenant|tag|study)", [0-9]{1,18}, [0-9]{1,18}, ".{0,5000}"\]'


@dataclass(frozen=True)
class UsagePage:
    """Rows with `key`, `name`, `jobs` and `SUMS`, in device-milliseconds; days are both included."""

    since: date
    until: date
    total: Row[Any]
    rows: Sequence[Row[Any]]
    following: str | None


class UsageLedger(TenantPart):
    """What the caller's jobs have used."""

    def page(
        self, by: UsageBy, since: date | None, until: date | None, limit: int, cursor: str | None = None
    ) -> UsagePage:
        """Lines by most GPU-seconds, then CPU-seconds, that have ended. InvalidSpec: a foreign cursor."""
        with self._database.reading() as connection:
            today = datetime.fromtimestamp(connection.execute(select(now())).scalar_one(), UTC).date()
            last = until or max(today, since or today)
            first = since or date.fromordinal(max(1, last.toordinal() - DAYS + 1))
            used = _by_job(self._filter, (first - EPOCH).days, (last - EPOCH).days, (today - EPOCH).days)
            total, *rows = connection.execute(_page(by, used, limit, cursor)).all()
        following = encode_cursor(json.dumps([by, *_place(rows[limit - 1])])) if len(rows) > limit else None
        return UsagePage(first, last, total, rows[:limit], following)


TENANT_STORE = UsageLedger  # which `TenantStore.features` gives to routes


def _place(row: Row[Any]) -> tuple[int, int, str]:
    return row.gpu_ended, row.cpu_ended, row.key or ""


def _by_job(tenant: str | None, first: int, last: int, today: int) -> FromClause:
    """Sums by job: the ledger's, and what runs now, which counts for today."""
    facts = (usage.c.job_id, usage.c.tenant, usage.c.study_id, usage.c.kind, usage.c.pool)
    entries = select(*facts, *(usage.c[part] for part in PARTS[:-1]), literal(0).label("running"))
    entries = entries.where(usage.c.day.between(first, last))
    owner = func.coalesce(jobs.c.tenant, "").label("tenant")
    elapsed = now() - shards.c.claimed_at
    running = cast(case((elapsed > 0, elapsed), else_=0) * 1000 * shards.c.devices, BigInteger)
    held = select(
        shards.c.job_id,
        owner,
        jobs.c.study_id,
        jobs.c.kind,
        shards.c.pool,
        running.label(PARTS[0]),
        *(literal(0).label(part) for part in PARTS[1:-1]),
        running.label("running"),
    ).join(jobs, jobs.c.id == shards.c.job_id)
    held = held.where(RUNNING, shards.c.pool.is_not(None), shards.c.claimed_at.is_not(None))
    held = held.where(literal(first <= today <= last))
    if tenant is not None:
        entries, held = entries.where(usage.c.tenant == tenant), held.where(shards.c.tenant == tenant)
    both = union_all(entries, held).subquery()
    by_pool = {"gpu": both.c.pool == "cuda", "cpu": both.c.pool != "cuda"}
    sums = [_sum(case((by_pool[name[:3]], both.c[name[4:]]), else_=0)).label(name) for name in SUMS]
    grouped = [both.c[name] for name in ("job_id", "tenant", "study_id", "kind")]
    return select(*grouped, *sums).group_by(*grouped).cte()  # Two parts of the statement read it once.


def _keyed(by: UsageBy, used: FromClause) -> Select[Any]:
    key: ColumnElement[Any] = {
        "job": case((used.c.kind == "check", null()), else_=used.c.job_id),
        "tenant": func.nullif(used.c.tenant, ""),
        "study": used.c.study_id,
    }.get(by, null())
    name: ColumnElement[Any] = null()
    source = used
    if by == "job":
        source, name = used.outerjoin(jobs, jobs.c.id == used.c.job_id), jobs.c.name
    elif by == "study":
        source, name = used.outerjoin(studies, studies.c.id == used.c.study_id), studies.c.name
    elif by == "tag":
        known = union_all(select(tags), select(deleted_tags)).subquery()
        source, key = used.outerjoin(known, known.c.job_id == used.c.job_id), known.c.tag
    named = func.max(case((key.is_not(None), name), else_=null())).label("name")
    return select(key.label("key"), named, *_numbers(used)).select_from(source).group_by(key)


def _numbers(used: FromClause) -> list[ColumnElement[int]]:
    sums = [func.coalesce(_sum(used.c[name]), 0) for name in SUMS]
    ended = [(sums[at] - sums[at + len(PARTS) - 1]).label(f"{SUMS[at][:3]}_ended") for at in (0, len(PARTS))]
    return [
        func.count().label("jobs"),
        *(part.label(name) for name, part in zip(SUMS, sums, strict=True)),
        *ended,
    ]


def _sum(milliseconds: ColumnElement[Any]) -> ColumnElement[int]:
    """The sum, exact below 2^53 ms: PostgreSQL sums doubles several times as fast as it sums `bigint`."""
    return cast(func.sum(cast(milliseconds, Double)), BigInteger)


def _page(by: UsageBy, used: FromClause, limit: int, cursor: str | None) -> Select[Any]:
    """One line more than `limit`, after the sum of all."""
    lines = _keyed(by, used).subquery()
    # Not what still runs: a line would move between pages.
    order = (lines.c.gpu_ended, lines.c.cpu_ended, func.coalesce(lines.c.key, ""))
    chosen = select(literal(1).label("place"), lines)
    if cursor is not None:
        try:
            stated, gpu, cpu, key = json.loads(decode_cursor(cursor, CURSOR))
        except ValueError:
            raise foreign_cursor(cursor) from None
        if stated != by:
            raise foreign_cursor(cursor)
        less = and_(order[0] == gpu, or_(order[1] < cpu, and_(order[1] == cpu, order[2] > key)))
        chosen = chosen.where(or_(order[0] < gpu, less))
    chosen = chosen.order_by(order[0].desc(), order[1].desc(), order[2]).limit(limit + 1)
    nothing = cast(null(), Text)
    total = select(literal(0).label("place"), nothing.label("key"), nothing.label("name"), *_numbers(used))
    both = union_all(total, select(chosen.subquery())).subquery()
    ranked = (both.c.gpu_ended.desc(), both.c.cpu_ended.desc(), func.coalesce(both.c.key, ""))
    return select(both).order_by(both.c.place, *ranked)
