"""Pure ASGI layers around the application (Starlette's `BaseHTTPMiddleware` breaks streamed answers)."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.service.api.caller import CALLER, Caller
from assay.service.api.errors import answer, error_response
from assay.service.contract.errors import (
    AssayError,
    Forbidden,
    Internal,
    MalformedRequest,
    TooLarge,
    TooManyRequests,
)
from assay.service.store.connections import is_loopback

logger = logging.getLogger(__name__)

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})


BODIES_AT_ONCE = 16
SAFE_HEADERS = (  # Headers of every answer that does not have its own.
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"private, no-cache"),
)
CSP = b"content-security-policy"
PAGE_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Manners:
    """HEAD is answered as GET without the body; headers keep caches and browsers from guessing."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application; after the header of an answer to HEAD it meets a client that went away."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_safe_headers(message.get("headers", ()))
            await send(message)

        if scope["method"] != "HEAD":
            await self.app(scope, receive, marked)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                await marked(message)
                # The rest of a long answer ends here: `receive` says that the client has gone.
                await send({"type": "http.response.body"})

        asked = {**scope, "method": "GET"}
        try:
            await self.app(asked, receive, without_body)
        finally:
            if "route" in asked:
                scope["route"] = asked["route"]  # telemetry counts by it


def with_safe_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, and the missing `SAFE_HEADERS`; pages also get a policy."""
    headers = list(headers)
    given = {name.lower(): value for name, value in headers}
    headers += [item for item in SAFE_HEADERS if item[0] not in given]
    if given.get(b"content-type", b"").startswith(b"text/html") and CSP not in given:
        headers.append((CSP, PAGE_POLICY))
    return headers


class ErrorBoundary:
    """The outermost layer: every exception from below leaves as the error envelope."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application; an unexpected exception is logged with an id and answered with 500."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except ClientDisconnect:
            logger.info("the client of %s %r went away", scope["method"], scope["path"])
        except Exception as error:
            if started:
                raise
            await _answer(known(error, scope), scope)(scope, receive, send)


def _answer(error: AssayError, scope: Scope) -> Response:
    if "app" not in scope:
        return error_response(error)
    try:
        return answer(Request(scope), error)
    except Exception as page_error:
        logger.error("the page of an error: %r", page_error)
        return error_response(error)


def known(error: Exception, scope: Scope) -> AssayError:
    """The error itself when it is meant for the user, else an `Internal` with its id in the log."""
    if isinstance(error, AssayError):
        return error
    error_id = secrets.token_hex(6)
    logger.error("error %s in %s %r", error_id, scope["method"], scope["path"], exc_info=error)
    return Internal(f"the service has a defect; its log has more under error id {error_id}")


class HostGuard:
    """Refuses requests that a web page could forge while the service runs without API keys.

    A page that rebinds its DNS name to 127.0.0.1 still sends its own name in `Host`; a page that posts
    across sites sends its own `Origin`.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str]) -> None:
        self.app = app
        self.allowed = frozenset(allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Checks `Host`, and `Origin` of calls that change state."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if len(headers.getlist("host")) > 1:
                raise MalformedRequest("the request has more than one Host header")
            if not _is_local_check(scope, headers.get("host", "")):
                self._check_host(headers.get("host", ""))
            if scope["method"] not in SAFE_METHODS:
                self._check_origin(headers.get("origin"), headers.get("host", ""))
        await self.app(scope, receive, send)

    def _check_host(self, host: str) -> None:
        if host_name(host) not in self.allowed:
            raise Forbidden(
                f"the Host header is {host[:100]!r}; allowed: {', '.join(sorted(self.allowed))} "
                "(setting ASSAY_ALLOWED_HOSTS)"
            )

    def _check_origin(self, origin: str | None, host: str) -> None:
        if origin is not None and origin.lower().partition("://")[2] != host.lower():
            raise Forbidden(f"calls from pages of another origin ({origin[:100]!r}) are refused")


def _is_local_check(scope: Scope, host: str) -> bool:
    """Whether this machine asks for its own health by its own name, which a rebound page never has."""
    client = scope.get("client")
    return (
        scope["path"] in HEALTH_PATHS
        and client is not None
        and is_loopback(client[0])
        and is_loopback(host_name(host) or "")
    )


def host_name(host: str) -> str | None:
    """The name in a Host header, without port and IPv6 brackets; None when it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname if parts.netloc == host and "@" not in host else None
    except ValueError:
        return None


class BodyCap:
    """Refuses bodies over a size limit, announced or not, before they are in memory.

    A tenant may have `BODIES_AT_ONCE` bodies of the largest size in memory; bodies of calls in `others` are
    not counted, since their routes store them or allow few bytes. `app`: the guarded application;
    `max_bytes`: limit of all calls except calls in `others`; `others`: other limits, by method and path.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, others: Mapping[tuple[str, str], int] | None = None
    ) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.others = others or {}
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Checks the announced length at once and the received length as it arrives."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        stored = self.others.get((scope["method"], scope["path"]))
        allowed = self.max_bytes if stored is None else stored
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdecimal() and int(announced[:20]) > allowed:
            raise _too_large(allowed)
        tenant = _tenant_of(scope)
        received = held = 0

        async def count() -> Message:
            nonlocal received, held
            message = await receive()
            if message["type"] == "http.request" and (size := len(message.get("body", b""))):
                received += size
                if received > allowed:
                    raise _too_large(allowed)
                if stored is None:
                    held += size
                    self._held[tenant] += size
                    if self._held[tenant] > BODIES_AT_ONCE * self.max_bytes:
                        raise TooManyRequests("too many large bodies of this tenant at a time; try again")
            return message

        try:
            await self.app(scope, count, send)
        finally:
            if held:
                self._held[tenant] -= held
                if not self._held[tenant]:
                    del self._held[tenant]


def _tenant_of(scope: Scope) -> str:
    caller = scope.get(CALLER)
    return (caller.view.tenant or "") if isinstance(caller, Caller) else ""


def _too_large(allowed: int) -> TooLarge:
    return TooLarge(f"the body is too large; allowed: {allowed} bytes")
