"""Route of the limits of the caller's tenant, and their usage."""

from __future__ import annotations

from typing import Literal, cast

from assay.service.api.deps import SettingsDep, StoreDep, StrictRouter
from assay.service.api.views import iso_or_none
from assay.service.contract.limits import LimitStatus, QueueStatus, QuotaStatus
from assay.service.settings import Settings
from assay.service.store.fleet.allotments import Allotment, QueuePlace, Use
from assay.service.store.fleet.quotas import Quota

router = StrictRouter(prefix="/api/v1/quota", tag="quota")


@router.get("", summary="Look at the tenant's limits")
def get_quota(store: StoreDep, settings: SettingsDep) -> QuotaStatus:
    """Each limit of the caller's tenant with what is used of it, its weight, and its place in the queues."""
    return quota_view(store.quota.status(quota_of(settings)))


def quota_of(settings: Settings) -> Quota:
    """Checkpoint quota of a tenant."""
    return Quota(count=settings.max_checkpoints, size=settings.max_checkpoints_bytes)


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
