"""Direct routes answer as the framework would, and leave it every other request."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter
from starlette.routing import Match

from assay.service.api.direct_routes import DirectRoute, DirectRoutes
from assay.service.api.routes import ROUTERS
from assay.service.gateway.calls import WorkerRoute


def scope(path: str, method: str = "POST", kind: str = "http", root: str = "") -> dict[str, Any]:
    return {"type": kind, "method": method, "path": path, "root_path": root}


@pytest.mark.parametrize("name", ["claim", "renew", "progress", "finish", "counters", "standing"])
def test_calls_of_workers_are_found_by_their_paths(name: str) -> None:
    match, found = DirectRoutes(ROUTERS).matches(scope(f"/api/v1/worker/{name}"))
    assert match is Match.FULL
    assert isinstance(found["route"], WorkerRoute)
    assert found["route"].path == f"/api/v1/worker/{name}", "telemetry counts by it"


@pytest.mark.parametrize(
    "other",
    [
        scope("/api/v1/worker/claim", "GET"),
        scope("/api/v1/worker/claim/"),
        scope("/api/v1/worker/upload"),
        scope("/api/v1/jobs"),
        scope("/api/v1/worker/claim", root="/below"),
        scope("/api/v1/worker/claim", kind="websocket"),
    ],
)
def test_every_other_request_is_the_frameworks(other: dict[str, Any]) -> None:
    assert DirectRoutes(ROUTERS).matches(other) == (Match.NONE, {})


def test_a_direct_route_says_whether_it_needs_the_framework() -> None:
    router = APIRouter()
    router.add_api_route("/plain", lambda: None, methods=["POST"])
    router.add_api_route("/other", lambda: None, methods=["POST"], route_class_override=DirectRoute)
    assert DirectRoutes([router]).matches(scope("/plain")) == (Match.NONE, {})
    assert DirectRoutes([router]).matches(scope("/other")) == (Match.NONE, {})
