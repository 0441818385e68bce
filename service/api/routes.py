"""All routes of the service, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

from assay.service.api import (
    artifacts,
    audit,
    browser_sessions,
    catalog,
    checkpoints,
    compare,
    events,
    health,
    jobs,
    keys,
    metrics,
    plots,
    reports,
    results,
    signatures,
    studies,
    tenants,
    workers,
)
from assay.service.webhooks import routes as webhooks

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
OTHERS = (webhooks, keys, tenants, workers, browser_sessions, audit, health, metrics)
ROUTERS: list[APIRouter] = [
    *(module.router for module in ABOUT_JOBS),
    tenants.quota,
    *(module.router for module in OTHERS),
]
