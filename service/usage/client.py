"""The Python client's calls for device-seconds.

with AssayClient() as client:
print(client.usage("tag", since="2026-11-01").total.gpu.total)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from assay.service.client.transport import API, Connection, parsed
from assay.service.usage.wire import Usage, UsageBy, UsageLine


class UsageCalls(Connection):
    """Reads what jobs have used."""

    def usage(
        self,
        by: UsageBy = "job",
        *,
        since: date | str | None = None,
        until: date | str | None = None,
        limit: int = 50,
    ) -> Usage:
        """Device-seconds by job, tenant, tag or study: at most `limit` lines, most GPU-seconds first.

        `since` and `until`: days in UTC, both included, by default the last 30. Of the key's tenant; with the
        scope `admin` of all.
        """
        params = {"by": by, "limit": str(min(limit, 200)), **_days(since, until)}
        found = parsed(Usage, self._json("GET", f"{API}/usage", params=params))
        while found.next_cursor is not None and len(found.items) < limit:
            params |= {"cursor": found.next_cursor, "limit": str(min(limit - len(found.items), 200))}
            page = parsed(Usage, self._json("GET", f"{API}/usage", params=params))
            found.items, found.next_cursor = [*found.items, *page.items], page.next_cursor
        return found

    def usage_lines(
        self, by: UsageBy = "job", *, since: date | str | None = None, until: date | str | None = None
    ) -> Iterator[UsageLine]:
        """All lines of `usage`, read page by page: where there are tens of thousands."""
        params = {"by": by, "limit": "200", **_days(since, until)}
        while True:
            page = parsed(Usage, self._json("GET", f"{API}/usage", params=params))
            yield from page.items
            if page.next_cursor is None:
                return
            params["cursor"] = page.next_cursor

    def usage_csv(
        self, by: UsageBy = "job", *, since: date | str | None = None, until: date | str | None = None
    ) -> str:
        """All lines of `usage` as CSV."""
        params = {"by": by, "format": "csv", **_days(since, until)}
        return self._call("GET", f"{API}/usage", params=params).text


def _days(since: date | str | None, until: date | str | None) -> dict[str, Any]:
    return {name: str(day) for name, day in (("since", since), ("until", until)) if day is not None}
