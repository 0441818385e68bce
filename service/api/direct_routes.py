"""Routes that are found by their paths alone, for calls that are most of a service's.

The framework tries the patterns of all routes in turn, twice, and prepares for dependencies that these lack.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from assay.service.api.deps import StrictRoute

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class DirectRoute(StrictRoute):
    """A route that may answer without the framework's dependencies."""

    def direct_handler(self) -> Handler | None:
        """What answers a request; None where the framework is needed."""
        return None

    def get_route_handler(self) -> Handler:
        """The handler that the framework calls."""
        return self.direct_handler() or super().get_route_handler()


class DirectRoutes(BaseRoute):
    """The direct routes of routers, as one route before all others; it matches no other request."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._known: dict[tuple[str, str], tuple[DirectRoute, Handler]] = {}
        for route in (route for router in routers for route in router.routes):
            handler = route.direct_handler() if isinstance(route, DirectRoute) else None
            if isinstance(route, DirectRoute) and handler is not None:
                self._known |= {(method, route.path): (route, handler) for method in route.methods or ()}

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As the framework asks; the route itself is named for telemetry."""
        if scope["type"] != "http" or scope.get("root_path"):
            return Match.NONE, {}
        found = self._known.get((scope["method"], scope["path"]))
        return (Match.NONE, {}) if found is None else (Match.FULL, {"route": found[0]})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request that matches."""
        _, answer = self._known[scope["method"], scope["path"]]
        response = await answer(Request(scope, receive, send))
        await response(scope, receive, send)
