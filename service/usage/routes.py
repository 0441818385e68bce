"""Route of device-seconds: by job, tenant, tag or study, as JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from sqlalchemy import Row

from assay.service.api.deps import Cursor, Limit, StoreDep, StrictRouter
from assay.service.api.errors import documented
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems
from assay.service.reports.formats.csv_text import inert
from assay.service.store.tenants import TenantStore
from assay.service.usage.store import PARTS, SUMS, UsageLedger, UsagePage
from assay.service.usage.wire import DeviceSeconds, Usage, UsageBy, UsageLine

MAX_CSV_LINES = 50_000
DEFAULT_LIMIT = 50
COLUMNS = (
    "key",
    "name",
    "jobs",
    *(f"{pool}_{part}" for pool in ("gpu", "cpu") for part in DeviceSeconds.model_fields),
)
router = StrictRouter(prefix="/api/v1/usage", tag="usage")
ROUTERS, BEFORE = (router,), "quota"
By = Annotated[UsageBy, Query(description="what a line is of")]
Since = Annotated[date | None, Query(description="first day, in UTC; by default 29 days before the last")]
Until = Annotated[date | None, Query(description="last day, in UTC; by default today")]


@router.get(
    "",
    summary="Device-seconds by job, tenant, tag or study",
    response_model=Usage,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **documented()},
)
def get_usage(
    store: StoreDep,
    by: By = "job",
    since: Since = None,
    until: Until = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = None,
    format: Annotated[Literal["json", "csv"], Query()] = "json",  # noqa: A002 (the contract's name)
) -> Usage | Response:
    """Most GPU-seconds first; of the caller's tenant, for administrators of all.

    A claim counts on the day on which it ends, and while it runs today. Deleted jobs stay. As CSV all lines.
    """
    if format == "json":
        return usage_of(store, by, since, until, limit, cursor)
    page = _page(store, by, since, until, MAX_CSV_LINES)
    if page.following is not None:
        raise InvalidSpec(f"there are more than {MAX_CSV_LINES} lines: choose fewer days by since and until")
    name = f"assay-usage-by-{by}-{page.since.isoformat()}-{page.until.isoformat()}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(to_csv(page.rows), media_type="text/csv; charset=utf-8", headers=headers)


def usage_of(
    store: TenantStore,
    by: UsageBy,
    since: date | None,
    until: date | None,
    limit: int,
    cursor: str | None = None,
) -> Usage:
    """The lines that a caller may see. Raises InvalidSpec: the first day is after the last."""
    page = _page(store, by, since, until, limit, cursor)
    return Usage(
        by=by,
        since=page.since.isoformat(),
        until=page.until.isoformat(),
        total=_line(page.total),
        items=[_line(row) for row in page.rows],
        next_cursor=page.following,
    )


def _page(
    store: TenantStore,
    by: UsageBy,
    since: date | None,
    until: date | None,
    limit: int,
    cursor: str | None = None,
) -> UsagePage:
    page = store.features.of(UsageLedger).page(by, since, until, limit, cursor)
    if page.since > page.until:
        problems = Problems()
        allowed = f"at most {page.until.isoformat()}"
        problems.add(
            ("query", "since"), "is after the last day", given=page.since.isoformat(), allowed=allowed
        )
        problems.raise_if_any()
    return page


def _line(row: Row[Any]) -> UsageLine:
    gpu, cpu = (
        DeviceSeconds(
            **{
                field: getattr(row, f"{pool}_{part}") / 1000
                for field, part in zip(DeviceSeconds.model_fields, PARTS, strict=True)
            }
        )
        for pool in ("gpu", "cpu")
    )
    return UsageLine(key=row.key, name=row.name, jobs=row.jobs, gpu=gpu, cpu=cpu)


def to_csv(rows: Sequence[Row[Any]]) -> str:
    """CSV with a row per line; seconds of devices."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in rows:
        _, key, name, jobs, *milliseconds = tuple(row)
        seconds = [value / 1000 for value in milliseconds[: len(SUMS)]]
        writer.writerow([inert(key or ""), inert(name or ""), jobs, *seconds])
    return text.getvalue()
