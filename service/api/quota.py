"""Routes of tenants' weights and limits, for administrators, and of the caller's limits and usage."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from fastapi import Path

from assay.service.api.authentication import TENANTS_PATH
from assay.service.api.caller import ActorDep
from assay.service.api.checkpoints import quota_of
from assay.service.api.deps import BodyDep, SettingsDep, StoreDep, StrictRouter, SystemStoreDep, json_body
from assay.service.api.errors import documented
from assay.service.api.views import iso_or_none
from assay.service.contract.errors import InvalidState, MalformedJson, NotFound, UnsupportedMediaType
from assay.service.contract.keys import TENANT_PATTERN
from assay.service.contract.limits import (
    Limits,
    LimitStatus,
    QueueStatus,
    QuotaStatus,
    Tenant,
    TenantSettings,
    limit_values,
)
from assay.service.contract.results import Page
from assay.service.store.allotments import Allotment, QueuePlace, Use
from assay.service.tenants.routes import GUARDED, validated

router = StrictRouter(prefix=TENANTS_PATH, tag="tenants", dependencies=GUARDED)
quota = StrictRouter(prefix="/api/v1/quota", tag="quota")
TenantName = Annotated[str, Path(pattern=TENANT_PATTERN, description="the tenant's name")]


@router.get("", summary="List the tenants", responses=documented(InvalidState))
def list_tenants(store: SystemStoreDep, settings: SettingsDep) -> Page[Tenant]:
    """All tenants that have a key, a weight or limits of their own, by name."""
    found = store.allotments.all()
    return Page(items=[tenant_view(name, own, settings.limits) for name, own in found.items()])


@router.get("/{tenant}", summary="Look at a tenant", responses=documented(NotFound, InvalidState))
def get_tenant(tenant: TenantName, store: SystemStoreDep, settings: SettingsDep) -> Tenant:
    """Weight and limits of a tenant; an unknown tenant has the defaults."""
    return tenant_view(tenant, store.allotments.settings(tenant), settings.limits)


@router.put(
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


@quota.get("", summary="Look at the tenant's limits")
def get_quota(store: StoreDep, settings: SettingsDep) -> QuotaStatus:
    """Each limit of the caller's tenant with what is used of it, its weight, and its place in the queues."""
    return quota_view(store.quota.status(quota_of(settings)))


def quota_view(found: Allotment) -> QuotaStatus:
    """An allotment as users see it."""
    return QuotaStatus(
        tenant=found.tenant,
        weight=found.weight,
        limits={name: _limit(use) for name, use in found.uses.items()},
        queue=[_queue(place) for place in found.places],
        delayed_by=found.delayed_by,
    )


def _limit(use: Use) -> LimitStatus:
    return LimitStatus(
        limit=use.limit or None,
        used=use.used,
        left=max(0, use.limit - use.used) if use.limit else None,
        resets_at=iso_or_none(use.resets_at),
    )


def _queue(place: QueuePlace) -> QueueStatus:
    return QueueStatus(
        device=cast(Literal["cpu", "cuda"], place.pool),
        queued=place.queued,
        running=place.running,
        before=place.before,
        share=round(place.share, 4),
    )
