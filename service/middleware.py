"""Pure ASGI layers around the application: error boundary, host guard, body cap.

Pure ASGI, because Starlette's `BaseHTTPMiddleware` breaks streamed answers.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.service.api.errors import error_response
from assay.service.contract.errors import AssayError, Forbidden, Internal, TooLarge

logger = logging.getLogger(__name__)

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


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
            await error_response(known(error, scope))(scope, receive, send)


def known(error: Exception, scope: Scope) -> AssayError:
    """The error itself when it is meant for the user, else an `Internal` whose id is in the log."""
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


def host_name(host: str) -> str | None:
    """The name in a Host header, without port and IPv6 brackets; None when it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname if parts.netloc == host and "@" not in host else None
    except ValueError:
        return None


class BodyCap:
    """Refuses bodies over a size limit, announced or not, before they are in memory.

    Args:
        app: the guarded application.
        max_bytes: limit of all calls but those in `others`.
        others: other limits, by method and path.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, others: Mapping[tuple[str, str], int] | None = None
    ) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.others = others or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Checks the announced length at once and the received length as it arrives."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        allowed = self.others.get((scope["method"], scope["path"]), self.max_bytes)
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdecimal() and int(announced[:20]) > allowed:
            raise _too_large(allowed)
        received = 0

        async def count() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > allowed:
                    raise _too_large(allowed)
            return message

        await self.app(scope, count, send)


def _too_large(allowed: int) -> TooLarge:
    return TooLarge(f"the body is too large; allowed: {allowed} bytes")
