"""Every request gets an id, is measured, and leaves one line in the log.

Pure ASGI, around all other layers, so that refused requests are counted too. Paths are counted by their route
(`/api/v1/jobs/{job_id}`): a path made up by a client never becomes a label, and bodies, queries and headers
are never logged, nor put into spans.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from bisect import bisect_left
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.service.contract import logs
from assay.service.contract.fleet import traces

log = logging.getLogger("assay.service.access")

REQUEST_ID = "assay.request_id"  # Key of the request's id in its ASGI scope.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
HEALTH = frozenset({"/healthz", "/readyz", "/metrics"})  # Polled by machines every few seconds: only DEBUG.
GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass
class Latency:
    """A histogram: answers begun within each of `BOUNDS` and after the last, and the sum of times."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0


class Requests:
    """Counters of this process's requests; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._responses: Counter[tuple[str, str, str]] = Counter()
        self._latencies: dict[tuple[str, str], Latency] = {}

    def note(self, route: str, method: str, status: str, seconds: float) -> None:
        """Counts an answer and the seconds until it began."""
        with self._lock:
            self._responses[route, method, status] += 1
            latency = self._latencies.setdefault((route, method), Latency())
            latency.counts[bisect_left(BOUNDS, seconds)] += 1
            latency.seconds += seconds

    def responses(self) -> dict[tuple[str, str, str], int]:
        """Number of answers by route, method and status."""
        with self._lock:
            return dict(self._responses)

    def latencies(self) -> dict[tuple[str, str], Latency]:
        """Histograms of the seconds until answers began, by route and method."""
        with self._lock:
            return {key: Latency(list(one.counts), one.seconds) for key, one in self._latencies.items()}


class Telemetry:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, requests: Requests) -> None:
        self.app = app
        self.requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application; streams are measured until they begin, and logged when they end."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = time.monotonic()
        seconds, status = 0.0, "none"
        request_id = scope[REQUEST_ID] = _request_id(scope)

        async def watch(message: Message) -> None:
            nonlocal seconds, status
            if message["type"] == "http.response.start":
                seconds, status = time.monotonic() - begun, str(message["status"])
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        with _traced(scope) as span, logs.about(request=request_id, **traces.fields(traces.current())):
            try:
                await self.app(scope, receive, watch)
            finally:
                route = route_of(scope)
                method = scope["method"] if scope["method"] in METHODS else "other"
                self.requests.note(route, method, status, seconds or time.monotonic() - begun)
                _tell(route, method, status, time.monotonic() - begun)
                _describe(span, route, method, status)


def route_of(scope: Scope) -> str:
    """The path template of a routed request; `other` for requests without a route."""
    return str(getattr(scope.get("route"), "path", "other"))


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if GIVEN_ID.fullmatch(given) else secrets.token_hex(8)


def _traced(scope: Scope) -> AbstractContextManager[Span]:
    """A span below the caller's, for requests that do more than ask after health."""
    given = Headers(scope=scope).getlist("traceparent")
    if scope["path"] in HEALTH or not (given or traces.are_kept()):
        return nullcontext(INVALID_SPAN)
    return traces.span("request", given[0] if len(given) == 1 else None, kind=SpanKind.SERVER)


def _describe(span: Span, route: str, method: str, status: str) -> None:
    span.update_name(f"{method} {route}")
    span.set_attributes({"http.request.method": method, "http.route": route})
    if status.isdecimal():
        span.set_attribute("http.response.status_code", int(status))
    if not status.isdecimal() or int(status) >= 500:
        span.set_status(StatusCode.ERROR)


def _tell(route: str, method: str, status: str, seconds: float) -> None:
    level = logging.DEBUG if route in HEALTH else logging.INFO
    if not log.isEnabledFor(level):
        return
    fields = {"method": method, "route": route, "status": status, "ms": round(1000 * seconds, 1)}
    log.log(level, "%s %s: %s in %.1f ms", method, route, status, 1000 * seconds, extra={"fields": fields})
