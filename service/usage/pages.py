"""The page of device-seconds."""

from __future__ import annotations

from datetime import date
from typing import Annotated, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from assay.service.api.deps import Cursor, StoreDep, StrictRoute
from assay.service.dashboard.choices import refused
from assay.service.dashboard.frame import render
from assay.service.usage.routes import usage_of
from assay.service.usage.wire import UsageBy

router = APIRouter(route_class=StrictRoute, include_in_schema=False)
NAVIGATION, BEFORE = ("/usage", "Usage"), None
PER_PAGE = 100
DayText = Annotated[str, Query(max_length=10)]


@router.get("/usage")
def usage(
    request: Request,
    store: StoreDep,
    by: UsageBy = "job",
    since: DayText = "",
    until: DayText = "",
    cursor: Cursor | None = None,
) -> Response:
    """Device-seconds of the caller's jobs."""
    found = usage_of(store, by, _day("since", since), _day("until", until), PER_PAGE, cursor)
    days = {"by": by, "since": found.since, "until": found.until}
    values = {
        "title": "Usage",
        "section": "/usage",
        "found": found,
        "kinds": get_args(UsageBy),
        "used": [pool for pool in ("gpu", "cpu") if getattr(found.total, pool).total],
        "csv": f"/api/v1/usage?{urlencode({**days, 'format': 'csv'})}",
        "following": found.next_cursor and f"/usage?{urlencode({**days, 'cursor': found.next_cursor})}",
    }
    return render(request, "usage.html", values)


def _day(name: str, text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        allowed = "a day such as 2026-01-31"
        raise refused(name, f"{name} must be {allowed}", text, allowed) from None
