"""Routes of API keys, and of weights and limits of tenants, for keys with the scope `admin`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from assay.service.api.authentication import KEYS_PATH, TENANTS_PATH
from assay.service.api.caller import ActorDep
from assay.service.api.deps import (
    GUARDED,
    BodyDep,
    SettingsDep,
    StrictRouter,
    SystemStoreDep,
    json_body,
    validated,
)
from assay.service.api.errors import documented
from assay.service.api.views import view
from assay.service.contract.errors import InvalidState, MalformedJson, NotFound, UnsupportedMediaType
from assay.service.contract.keys import TENANT_PATTERN, Key, KeyRequest, NewKey
from assay.service.contract.limits import Limits, Tenant, TenantSettings, limit_values
from assay.service.contract.results import Page
from assay.service.store.rows import KeyRow

DAY_SECONDS = 86400


keys = StrictRouter(prefix=KEYS_PATH, tag="keys", dependencies=GUARDED)
tenants = StrictRouter(prefix=TENANTS_PATH, tag="tenants", dependencies=GUARDED)
TenantName = Annotated[str, Path(pattern=TENANT_PATTERN, description="the tenant's name")]
ROUTERS, BEFORE = (keys, tenants), "keys"


@keys.get("", summary="List the API keys", responses=documented(InvalidState))
def list_keys(store: SystemStoreDep) -> Page[Key]:
    """All keys, the revoked and expired ones too, without their secrets."""
    return Page(items=[key_view(row) for row in store.keys.list()])


@keys.post(
    "",
    summary="Make an API key",
    status_code=201,
    responses=documented(MalformedJson, UnsupportedMediaType, InvalidState),
    openapi_extra=json_body(KeyRequest),
)
def create_key(body: BodyDep, store: SystemStoreDep, by: ActorDep, response: Response) -> NewKey:
    """The answer has the key's text, which cannot be had again."""
    request = validated(KeyRequest, body)
    days = request.expires_days
    row, text = store.keys.create(
        request.name,
        request.scopes,
        tenant=request.tenant,
        expires_seconds=None if days is None else days * DAY_SECONDS,
        by=by,
    )
    response.headers["Cache-Control"] = "no-store"
    return NewKey(**key_view(row).model_dump(), key=text)


@keys.delete(
    "/{key_id}", summary="Revoke an API key", status_code=204, responses=documented(NotFound, InvalidState)
)
def revoke_key(
    key_id: Annotated[str, Path(description="the key's id")], store: SystemStoreDep, by: ActorDep
) -> None:
    """The key and its sessions open nothing from now on; its jobs stay."""
    store.keys.revoke(key_id, by=by)


def key_view(row: KeyRow) -> Key:
    """A key as users see it."""
    return view(Key, row)


@tenants.get("", summary="List the tenants", responses=documented(InvalidState))
def list_tenants(store: SystemStoreDep, settings: SettingsDep) -> Page[Tenant]:
    """All tenants that have a key, a weight or limits of their own, by name."""
    found = store.allotments.all()
    return Page(items=[tenant_view(name, own, settings.limits) for name, own in found.items()])


@tenants.get("/{tenant}", summary="Look at a tenant", responses=documented(NotFound, InvalidState))
def get_tenant(tenant: TenantName, store: SystemStoreDep, settings: SettingsDep) -> Tenant:
    """Weight and limits of a tenant; an unknown tenant has the defaults."""
    return tenant_view(tenant, store.allotments.settings(tenant), settings.limits)


@tenants.put(
    "/{tenant}",
    summary="Set a tenant's weight and limits",
    responses=documented(MalformedJson, UnsupportedMediaType, InvalidState),
    openapi_extra=json_body(TenantSettings),
)
def set_tenant(
    tenant: TenantName, body: BodyDep, store: SystemStoreDep, by: ActorDep, settings: SettingsDep
) -> Tenant:
    """Replaces all of them: what the body leaves out has its default again. The next claim heeds it."""
    own = validated(TenantSettings, body)
    store.allotments.set(tenant, own, by=by)
    return tenant_view(tenant, own, settings.limits)


def tenant_view(name: str, own: TenantSettings, defaults: Limits) -> Tenant:
    """A tenant as operators see it."""
    in_force = defaults.overridden(own.own_limits)
    return Tenant(name=name, weight=own.weight, own=own.own_limits, limits=limit_values(in_force))
