"""Route of the limits of the caller's tenant, and their usage."""

from __future__ import annotations

from assay.service.api.deps import SettingsDep, StoreDep, StrictRouter
from assay.service.contract.limits import QuotaStatus
from assay.service.settings import Settings
from assay.service.store.fleet.quotas import Quota

router = StrictRouter(prefix="/api/v1/quota", tag="quota")


@router.get("", summary="Look at the tenant's limits")
def get_quota(store: StoreDep, settings: SettingsDep) -> QuotaStatus:
    """Each limit of the caller's tenant with what is used of it, its weight, and its place in the queues."""
    return store.quota.status(quota_of(settings))


def quota_of(settings: Settings) -> Quota:
    """Checkpoint quota of a tenant."""
    return Quota(count=settings.max_checkpoints, size=settings.max_checkpoints_bytes)
