"""The page of workers."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.caller import CallerDep
from assay.service.api.deps import CatalogDep, SettingsDep, StrictRoute, SystemStoreDep
from assay.service.api.health import readyz
from assay.service.dashboard.frame import render
from assay.service.dashboard.overview import fleet_problems
from assay.service.settings import Settings
from assay.service.store.fleet.fleets import Fleet
from assay.service.workers.routes import worker_view

router = APIRouter(route_class=StrictRoute, include_in_schema=False)
NAVIGATION, BEFORE = ("/workers", "Workers"), None


@router.get("/workers")
def workers(
    request: Request, system: SystemStoreDep, settings: SettingsDep, catalog: CatalogDep, caller: CallerDep
) -> Response:
    """Workers with a heartbeat in the last minute; hosts and processes for administrators."""
    ready = readyz(system, settings, catalog)
    listed = {one.worker: worker_view(one) for one in system.cordons.workers() if one.worker}
    online = system.online_workers()
    # What `assay workers list` says of each: administrators alone may know it.
    known = [listed.get(one.worker) for one in online] if caller.view.everything else [None] * len(online)
    fleets = system.workers.fleets.all(settings.limits)
    values = {
        "title": "Workers",
        "section": "/workers",
        "workers": list(zip(online, known, strict=True)),
        "digest": catalog.digest,
        "fleets": fleets if caller.view.everything else [],
        "start": _start(settings, fleets),
        "problems": fleet_problems(ready, waiting=0),
        "everything": caller.view.everything,
    }
    return render(request, "workers.html", values)


def _start(settings: Settings, fleets: Sequence[Fleet]) -> str:
    """How this service gets a worker."""
    if any(fleet.online for fleet in fleets):
        return "A fleet starts workers while shards are queued."
    if fleets:
        return "The controller of the fleet is away: start it again (assay fleet slurm)."
    if settings.mode == "distributed":
        return "Start one: docker compose up worker; in Kubernetes the keeper's pod."
    if settings.workers:
        return "The service's own workers should: its log says why they do not."
    return "Start a node (assay worker --gateway ADDRESS), or the service with --workers 1."
