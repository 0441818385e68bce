"""Authentication: every path, existing or not, needs an API key.

The guard is a layer around the whole application and checks paths, not routes: it covers every route added
later, with the scope `read` for reading and `submit` for everything else. Only the two health routes, the
login and the public keys of signatures are open.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as RequestScope

from assay.service.api import login_page
from assay.service.api.caller import CALLER, Caller, actor_in
from assay.service.api.errors import unavailable
from assay.service.api.refusals import Refusals
from assay.service.contract.errors import Forbidden, Unauthorized, Unavailable
from assay.service.contract.keys import Scope
from assay.service.store.rows import BrowserSessionRow, KeyRow
from assay.service.store.store import Store

logger = logging.getLogger(__name__)
T = TypeVar("T")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SESSION_PATH = "/api/v1/session"
KEYS_PATH = "/api/v1/keys"
AUDIT_PATH = "/api/v1/audit"
TENANTS_PATH = "/api/v1/tenants"
WORKERS_PATH = "/api/v1/workers"
GATEWAY_PATH = "/api/v1/worker"
CHECKPOINTS_PATH = "/api/v1/checkpoints"
METRICS_PATH = "/metrics"
SIGNING_KEYS_PATH = "/.well-known/assay-keys"
REMEMBERED_SECONDS = 1.0  # A busy client calls so often that a query each would be a fifth of a call.
WATCHER_SECONDS = 3600.0
OPEN = frozenset(  # Keys that check signatures are public: who was sent results has no API key.
    {("GET", "/healthz"), ("GET", "/readyz"), ("POST", SESSION_PATH), ("GET", SIGNING_KEYS_PATH)}
)
COOKIE = "assay_session"
CSRF_HEADER = "X-CSRF-Token"
BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE | re.ASCII)
REFUSED = (  # One text for all invalid keys and sessions: it must not tell which of them were once valid.
    "this service needs an API key that works: send it as `Authorization: Bearer assay_...`;"
    " the operator makes one on the service's machine with `assay keys create --state FOLDER`"
)


class Opener(Protocol):
    """Returns the store, opened at the first call."""

    @property
    def opened(self) -> Store | None:
        """The store, if it is open."""
        ...

    def __call__(self) -> Store:
        """The store; raises the database's error while it cannot be opened."""
        ...


class KeyGuard:
    """Identifies the caller, refuses unauthorised calls, and puts the caller in the request's scope."""

    def __init__(self, app: ASGIApp, opener: Opener, refusals: Refusals, *, required: bool) -> None:
        self.app = app
        self.opener = opener
        self.refusals = refusals
        self.required = required

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        """Checks key, CSRF token and scope before reading the body."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            # The service has no web sockets; a connection without a key must not learn that.
            await send({"type": "websocket.close", "code": 1008})
            return
        if not self.required:
            scope[CALLER] = Caller()
            await self.app(scope, receive, send)
            return
        if (scope["method"], scope["path"]) in OPEN:
            await self.app(scope, receive, send)
            return
        try:
            caller = await self._caller(scope)
        except Unauthorized:
            if not login_page.wanted(scope):
                raise
            page = login_page.login_response(login_page.ASKED, login_page.path_of(scope))
            await page(scope, receive, send)
            return
        await self._check_access(caller, scope)
        scope[CALLER] = caller
        await self.app(scope, receive, send)

    async def _caller(self, scope: RequestScope) -> Caller:
        headers = Headers(scope=scope)
        given = headers.getlist("authorization")
        if given:  # With a key in the request, the key alone decides; an accompanying cookie is ignored.
            return Caller(key=await self._key_of(given, scope))
        token = cookie_token(headers)
        session = await _asked(lambda: self.opener().browser_sessions.find(token)) if token else None
        if session is None:
            raise Unauthorized(REFUSED)
        return Caller(key=session.key, session=session, token=token)

    async def _check_access(self, caller: Caller, scope: RequestScope) -> None:
        method, path = scope["method"], scope["path"]
        try:
            if caller.session is not None and method not in SAFE_METHODS and not is_form(scope):
                check_csrf(Headers(scope=scope), caller.session)
            caller.needs(needed(method, path))
        except Forbidden as error:
            by = actor_in(scope, caller)
            await run_in_threadpool(self.refusals.access, by, method, path, error.message)
            raise

    async def _key_of(self, given: list[str], scope: RequestScope) -> KeyRow:
        bearer = BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
        text = bearer[1] if bearer else ""
        key = self._remembered(text, REMEMBERED_SECONDS) if text else None
        if key is None and text:
            key = await self._asked_for(text, scope["path"])
        if key is None:
            by = actor_in(scope, Caller())  # An expired session is no failed login: open tabs go on asking.
            await run_in_threadpool(self.refusals.login, by, "key.use", text)
            raise Unauthorized(REFUSED)
        return key

    async def _asked_for(self, text: str, path: str) -> KeyRow | None:
        try:
            return await _asked(lambda: self.opener().keys.authenticate(text))
        except Unavailable:
            # Monitoring must learn that the database is away.
            key = self._remembered(text, WATCHER_SECONDS) if path == METRICS_PATH else None
            if key is None:
                raise
            return key

    def _remembered(self, text: str, seconds: float) -> KeyRow | None:
        store = self.opener.opened
        return None if store is None else store.keys.remembered(text, seconds)


async def _asked(ask: Callable[[], T]) -> T:
    """The database's answer, queried in a thread; this layer is outside the application's handlers."""
    try:
        return await run_in_threadpool(ask)
    except (DBAPIError, PoolTimeout) as error:
        away = unavailable(error)
        if away is None:
            raise
        logger.warning("the database is away, so no key can be checked: %s", error)
        raise away from error


def is_form(scope: RequestScope) -> bool:
    """Whether a call is a form of a page: its body has the token, which `dashboard.forms` checks."""
    kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    return not scope["path"].startswith("/api/") and kind == "application/x-www-form-urlencoded"


def check_csrf(headers: Headers, session: BrowserSessionRow) -> None:
    """Raises Forbidden unless a session's call has its token against forged calls."""
    sent = headers.getlist(CSRF_HEADER)
    if len(sent) != 1 or not hmac.compare_digest(sent[0].encode("latin-1"), session.csrf.encode()):
        raise Forbidden(
            f"a session's calls that change something need its csrf_token in the header {CSRF_HEADER}"
        )


def needed(method: str, path: str) -> Scope:
    """The scope that a call needs."""
    if path == GATEWAY_PATH or path.startswith(f"{GATEWAY_PATH}/"):
        return "worker"
    administrative = (KEYS_PATH, TENANTS_PATH, AUDIT_PATH, WORKERS_PATH)
    if any(path == one or path.startswith(f"{one}/") for one in administrative):
        return "admin"
    return "read" if method in SAFE_METHODS or path == SESSION_PATH else "submit"


def cookie_token(headers: Headers) -> str:
    """The session's token among the cookies; empty without a token, or with several."""
    # A page of a sibling domain could add a cookie of this name; two of them cannot be told apart.
    cookies = [part.strip() for line in headers.getlist("cookie") for part in line.split(";")]
    found = [part.partition("=")[2] for part in cookies if part.partition("=")[0] == COOKIE]
    return found[0] if len(found) == 1 else ""
