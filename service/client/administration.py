"""The Python client's calls for keys with the scope `admin`: API keys, workers and the audit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from assay.service.client.transport import API, BadAnswer, Connection, error_of, parsed, part, reaching
from assay.service.contract.audit import AuditEntry
from assay.service.contract.keys import Key, NewKey
from assay.service.contract.results import Page
from assay.service.contract.workers import IdentityStatus, WorkerStatus

JSON_LINES = "application/x-ndjson"


class AdministrationCalls(Connection):
    """Makes, lists and revokes keys, rules on workers and their code, and reads the audit."""

    def api_keys(self) -> list[Key]:
        """All keys, the revoked and expired ones too, oldest first."""
        return parsed(Page[Key], self._json("GET", f"{API}/keys")).items

    def create_key(
        self,
        name: str,
        scopes: Collection[str],
        *,
        tenant: str | None = None,
        expires_days: int | None = None,
    ) -> NewKey:
        """Makes a key, `name` is for people; its text is in the answer, and cannot be had again.

        `scopes` are of "read", "submit" and "admin". The key makes and sees the jobs of `tenant`; None makes
        a new tenant. It lives `expires_days`, 1 to 3650, or without limit. Raises InvalidSpec for a wrong
        value, Forbidden without the scope admin, InvalidState if the service asks for no keys.
        """
        given = {"tenant": tenant, "expires_days": expires_days}
        body = {"name": name, "scopes": list(scopes), **{k: v for k, v in given.items() if v is not None}}
        return parsed(NewKey, self._json("POST", f"{API}/keys", body=body))

    def revoke_key(self, key_id: str) -> None:
        """Ends a key and its sessions for good; NotFound if there is no such key."""
        self._call("DELETE", f"{API}/keys/{part(key_id)}")

    def workers(self) -> list[WorkerStatus]:
        """All workers that gave a sign of life within a day or are cordoned, by name."""
        return parsed(Page[WorkerStatus], self._json("GET", f"{API}/workers")).items

    def cordon_worker(self, name: str) -> WorkerStatus:
        """Lets a worker end its shard and take no other, even restarted; NotFound names the nearest."""
        return self._worker(name, "cordon")

    def drain_worker(self, name: str) -> WorkerStatus:
        """As `cordon_worker`; its running shard goes back to the queue too, uncounted."""
        return self._worker(name, "drain")

    def uncordon_worker(self, name: str) -> WorkerStatus:
        """Puts a worker back into service."""
        return self._worker(name, "uncordon")

    def identities(self) -> list[IdentityStatus]:
        """What the service declares of its workers' code, and what administrators have ruled."""
        return parsed(Page[IdentityStatus], self._json("GET", f"{API}/workers/identities")).items

    def allow_identity(self, digest: str) -> IdentityStatus:
        """Lets workers without the service's own code take work; InvalidSpec: no digest of an identity."""
        return self._identity(digest, "allow")

    def withdraw_identity(self, digest: str) -> IdentityStatus:
        """Gives workers of an identity no more work; the jobs that they have planned wait."""
        return self._identity(digest, "withdraw")

    def _identity(self, digest: str, action: str) -> IdentityStatus:
        path = f"{API}/workers/identities/{part(digest)}/{action}"
        return parsed(IdentityStatus, self._json("POST", path))

    def _worker(self, name: str, action: str) -> WorkerStatus:
        return parsed(WorkerStatus, self._json("POST", f"{API}/workers/{part(name)}/{action}"))

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
        with (
            reaching(self.url),
            self._http.stream("GET", f"{API}/audit", params=params, headers=headers) as response,
        ):
            if response.is_error:
                response.read()
                raise error_of(response)
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
