"""The Python client's calls for the audit; they need the scope `admin`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from assay.service.client.transport import API, BadAnswer, Connection, parsed
from assay.service.contract.audit import JSON_LINES, AuditEntry
from assay.service.contract.results import Page


class AuditCalls(Connection):
    """Reads the audit."""

    def audit(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        tenant: str | None = None,
        action: str | None = None,
        key: str | None = None,
    ) -> Iterator[AuditEntry]:
        """The audit entries that match all filters, oldest first, read as they arrive.

        `contract.audit.chain_of` checks the chain of all. Raises Unreachable if the connection breaks early.
        """
        filters = {"after": after, "before": before, "tenant": tenant, "action": action, "key": key}
        params = {name: value for name, value in filters.items() if value is not None}
        headers = {"Accept": JSON_LINES}
        with self._streamed(f"{API}/audit", params=params, headers=headers) as response:
            if not response.headers.get("content-type", "").startswith(JSON_LINES):
                raise BadAnswer(f"{self.url} answers, but not with audit entries")
            for line in response.iter_lines():
                yield parsed(AuditEntry, _object(line))

    def newest_audit(
        self,
        count: int = 50,
        *,
        after: str | None = None,
        before: str | None = None,
        tenant: str | None = None,
        action: str | None = None,
        key: str | None = None,
    ) -> list[AuditEntry]:
        """The newest audit entries that match all filters (see `audit`), at most so many, newest first."""
        filters = {"after": after, "before": before, "tenant": tenant, "action": action, "key": key}
        params = {name: value for name, value in filters.items() if value is not None}
        found: list[AuditEntry] = []
        while len(found) < count:
            params["limit"] = str(min(count - len(found), 200))
            page = parsed(Page[AuditEntry], self._json("GET", f"{API}/audit", params=params))
            found += page.items
            if page.next_cursor is None:
                break
            params["cursor"] = page.next_cursor
        return found


def _object(line: str) -> dict[str, object]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadAnswer("a line of the audit is not a JSON object")
    return found
