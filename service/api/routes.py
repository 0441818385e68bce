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

ABOUT_JOBS = (
    jobs,
    events,
    results,
    artifacts,
    compare,
    catalog,
)
OTHERS = (quota, browser_sessions, health, metrics)
CORE: list[APIRouter] = [module.router for module in (*ABOUT_JOBS, *OTHERS)]


def _with_features(core: list[APIRouter]) -> list[APIRouter]:
    """The core's routers, with each feature's before the core's first of the tag or route that it names."""
    routers = [*core]
    for module in features.modules("routes"):
        place = routers.index(next(router for router in core if module.BEFORE in _names(router)))
        routers[place:place] = module.ROUTERS
    return routers


def _names(router: APIRouter) -> set[object]:
    return {*router.tags, *(getattr(route, "name", "") for route in router.routes)}


ROUTERS = _with_features(CORE)
