"""The Python client's calls for tenants: their API keys, weights and limits."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from assay.service.client.transport import API, Connection, parsed, part
from assay.service.contract.keys import Key, NewKey
from assay.service.contract.limits import QuotaStatus, Tenant
from assay.service.contract.results import Page


class TenantCalls(Connection):
    """Makes, lists and revokes keys, and reads and sets weights and limits of tenants."""

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

    def quota(self) -> QuotaStatus:
        """Limits and usage of the caller's tenant, and its place in the queues."""
        return parsed(QuotaStatus, self._json("GET", f"{API}/quota"))

    def tenants(self) -> list[Tenant]:
        """All tenants with their weights and limits; needs a key with the scope `admin`."""
        return parsed(Page[Tenant], self._json("GET", f"{API}/tenants")).items

    def tenant(self, name: str) -> Tenant:
        """One tenant; needs a key with the scope `admin`."""
        return parsed(Tenant, self._json("GET", f"{API}/tenants/{part(name)}"))

    def set_tenant(self, name: str, **settings: Any) -> Tenant:
        """Sets weight and limits of a tenant, which need not have a key yet; needs the scope `admin`.

        `settings`: `weight` (0.01 to 1000), `queued_jobs`, `running_shards`, `gpu_seconds`, `cpu_seconds`,
        `stored_bytes`, `uploads`: None, as if absent, is the service's default, 0 no limit.
        """
        return parsed(Tenant, self._json("PUT", f"{API}/tenants/{part(name)}", body=settings))
