"""Routes of health: is the process alive, and can it do its work."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from service.api.deps import StoreDep, only
from service.api.errors import documented
from service.contract.results import Answer

router = APIRouter(tags=["health"])


class Health(Answer):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(Answer):
    """Jobs can be stored; `workers_online` says how many supervisors could run one, by device class."""

    status: Literal["ready"] = "ready"
    database: Literal["ok"] = "ok"
    workers_online: dict[str, int]


@router.get(
    "/healthz", operation_id="healthz", summary="Liveness", responses=documented(), dependencies=[only()]
)
def healthz() -> Health:
    """Touches nothing: for the process manager that restarts a hung service."""
    return Health()


@router.get(
    "/readyz", operation_id="readyz", summary="Readiness", responses=documented(), dependencies=[only()]
)
def readyz(store: StoreDep) -> Readiness:
    """Asks the database; 503 when it is away. Missing workers do not make it fail: jobs queue."""
    store.ping()
    online = {device: store.workers.online(device) for device in ("auto", "cpu", "cuda")}
    return Readiness(workers_online=online)
