"""All routes of the service, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

from assay.service import features
from assay.service.api import (
    artifacts,
    browser_sessions,
    catalog,
    checkpoints,
    compare,
    events,
    health,
    jobs,
    metrics,
    plots,
    quota,
    reports,
    results,
    signatures,
    studies,
)
from assay.service.audit import routes as audit
from assay.service.tenants import routes as keys
from assay.service.workers import routes as workers

ABOUT_JOBS = (
    jobs,
    studies,
    events,
    results,
    plots,
    signatures,
    artifacts,
    checkpoints,
    compare,
    reports,
    catalog,
)
OTHERS = (keys, quota, workers, browser_sessions, audit, health, metrics)
CORE: list[APIRouter] = [
    *(module.router for module in ABOUT_JOBS),
    quota.quota,
    *(module.router for module in OTHERS),
]


def _with_features(core: list[APIRouter]) -> list[APIRouter]:
    """The core's routers, with each feature's before the first router of the tag that the feature names."""
    routers = [*core]
    for module in features.modules("routes"):
        place = next(n for n, router in enumerate(routers) if module.BEFORE in router.tags)
        routers.insert(place, module.router)
    return routers


ROUTERS = _with_features(CORE)
