"""All routes of the service, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

from assay.service import features
from assay.service.api import (
    artifacts,
    browser_sessions,
    catalog,
    compare,
    events,
    health,
    jobs,
    metrics,
    quota,
    results,
)
from assay.service.studies import routes as studies

ABOUT_JOBS = (
    jobs,
    studies,
    events,
    results,
    artifacts,
    compare,
    catalog,
)
OTHERS = (quota, browser_sessions, health, metrics)
CORE: list[APIRouter] = [module.router for module in (*ABOUT_JOBS, *OTHERS)]


def _with_features(core: list[APIRouter]) -> list[APIRouter]:
    """The core's routers, with each feature's before the core's first of the tag that the feature names."""
    routers = [*core]
    for module in features.modules("routes"):
        place = routers.index(next(router for router in core if module.BEFORE in router.tags))
        routers[place:place] = module.ROUTERS
    return routers


ROUTERS = _with_features(CORE)
