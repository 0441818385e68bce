"""The caller of a request: set by the key guard, queried by routes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope as RequestScope

from assay.service.contract.errors import Forbidden
from assay.service.contract.keys import SCOPES, Scope, grants
from assay.service.contract.problems import readable
from assay.service.store.audit import Actor, session_mark
from assay.service.store.rows import BrowserSessionRow, KeyRow
from assay.service.store.store import Store
from assay.service.store.tenants import View
from assay.service.telemetry import REQUEST_ID

CALLER = "assay.caller"  # Key of the caller in the request's ASGI scope.
MAX_ADDRESS = 60  # The longest is an IPv6 address with a zone; a proxy may send anything.


@dataclass(frozen=True)
class Caller:
    """The author of a request."""

    key: KeyRow | None = None  # the API key, also behind a session; None where the service asks for no keys
    session: BrowserSessionRow | None = None  # the browser session; None for calls with the key itself
    token: str = ""  # the session's token

    @property
    def view(self) -> View:
        """The caller's view of the store."""
        if self.key is None:
            return View(None, everything=True)
        return View(self.key.tenant, everything=grants(self.key.scopes, "admin"))

    def still_allowed(self, store: Store) -> bool:
        """Whether the key, or the session, is still valid: for answers that last for hours."""
        if self.session is not None:
            return store.browser_sessions.find(self.token) is not None
        return self.key is None or store.keys.works(self.key.id)

    def needs(self, scope: Scope) -> None:
        """Raises Forbidden, naming the scope, when the key lacks it."""
        if self.key is not None and not grants(self.key.scopes, scope):
            wide_enough = " or ".join(repr(other) for other in SCOPES if grants([other], scope))
            raise Forbidden(f"the key lacks the scope {wide_enough}; it has {', '.join(self.key.scopes)}")


def actor_in(scope: RequestScope, caller: Caller) -> Actor:
    """Who acts in a request, for the audit."""
    client = scope.get("client")
    return Actor(
        tenant=None if caller.key is None else caller.key.tenant,
        key=None if caller.key is None else caller.key.id,
        session=None if caller.session is None else session_mark(caller.token),
        address=readable(str(client[0]), MAX_ADDRESS) if client else None,
        request=scope.get(REQUEST_ID),
    )


def caller_in(scope: RequestScope) -> Caller:
    """The caller of a request; RuntimeError: no guard has checked it, a defect and no reason to allow it."""
    caller = scope.get(CALLER)
    if not isinstance(caller, Caller):
        raise RuntimeError("this request has no caller: its route is open, or the app has no key guard")
    return caller


def _caller(request: Request) -> Caller:
    return caller_in(request.scope)


def _actor(request: Request) -> Actor:
    return actor_in(request.scope, caller_in(request.scope))


CallerDep = Annotated[Caller, Depends(_caller)]


def administrator(caller: CallerDep) -> None:
    """A dependency that checks the scope `admin`, after the guard's own check."""
    caller.needs("admin")


ActorDep = Annotated[Actor, Depends(_actor)]  # For the audit; routes of the tenants' store have it already.
