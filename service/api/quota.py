"""Route of the caller's limits and usage."""

from __future__ import annotations

from typing import Literal, cast

from fastapi import APIRouter

from assay.service.api.checkpoints import quota_of
from assay.service.api.deps import SettingsDep, StoreDep, StrictRoute
from assay.service.api.errors import documented
from assay.service.api.views import iso_or_none
from assay.service.contract.limits import LimitStatus, QueueStatus, QuotaStatus
from assay.service.store.allotments import Allotment, QueuePlace, Use

router = APIRouter(route_class=StrictRoute, prefix="/api/v1/quota", tags=["quota"])


@router.get(
    "",
    operation_id="get_quota",
    summary="Look at the tenant's limits",
    responses=documented(),
)
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
