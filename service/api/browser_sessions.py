"""Routes of browser sessions: a key is exchanged for a cookie that scripts cannot read.

With the cookie, calls that change state need the session's CSRF token in a header, which a page of another
site can neither read nor send. Programs send their key with every call and need no session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request, Response
from starlette.responses import JSONResponse, RedirectResponse

from assay.service.api import login_page
from assay.service.api.authentication import COOKIE, REFUSED, SESSION_PATH
from assay.service.api.caller import ActorDep, Caller, CallerDep, actor_in
from assay.service.api.deps import SettingsDep, StrictRouter, SystemStoreDep, keys_used, media_type, validated
from assay.service.api.errors import documented
from assay.service.api.refusals import Refusals
from assay.service.contract.errors import (
    InvalidState,
    MalformedJson,
    NotFound,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
)
from assay.service.contract.keys import Session, SessionRequest
from assay.service.contract.strict_json import parse_json
from assay.service.contract.times import iso
from assay.service.store.audit import Actor
from assay.service.store.browser_sessions import SESSION_SECONDS
from assay.service.store.rows import BrowserSessionRow

router = StrictRouter(prefix=SESSION_PATH, tag="keys", dependencies=[Depends(keys_used)])

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


@dataclass(frozen=True)
class Attempt:
    """A submitted key; `back` is the path to return the browser to, None for calls with JSON."""

    key: str
    back: str | None


async def _attempt(request: Request, settings: SettingsDep) -> Attempt:
    if media_type(request, JSON, FORM) == FORM:
        return _form(await request.body())
    body = parse_json(await request.body(), settings.max_json_depth)
    return Attempt(validated(SessionRequest, body).key, back=None)


def _form(raw: bytes) -> Attempt:
    try:
        fields = parse_qs(raw.decode("ascii"), max_num_fields=5, errors="strict")
    except ValueError:
        raise MalformedJson("the body is not a form") from None
    if set(fields) - {"key", "next"} or any(len(values) != 1 for values in fields.values()):
        raise MalformedJson("the form has other fields than one 'key' and one 'next'")
    key, back = fields.get("key", [""])[0], fields.get("next", [""])[0]
    return Attempt(key.strip(), login_page.own_path(back))


_KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
_BODY = {
    "required": True,
    "content": {JSON: {"schema": SessionRequest.model_json_schema()}, FORM: {"schema": _KEY}},
}


@router.post(
    "",
    summary="Begin a browser session",
    status_code=201,
    response_model=Session,
    responses={
        201: {"headers": {"Set-Cookie": {"description": "the session", "schema": {"type": "string"}}}},
        303: {"description": "The form was right: to the page that was asked for"},
        **documented(MalformedJson, UnsupportedMediaType, InvalidState),
    },
    openapi_extra={"requestBody": _BODY},
)
def log_in(
    attempt: Annotated[Attempt, Depends(_attempt)], request: Request, store: SystemStoreDep
) -> Response:
    """Takes a key, sets a cookie for twelve hours and answers with the token against forged calls."""
    by = actor_in(request.scope, Caller())
    opened = store.browser_sessions.open(attempt.key, by=by)
    if opened is None:
        return _refused(request, attempt, by)
    session, token = opened
    response: Response
    if attempt.back is not None:
        response = RedirectResponse(attempt.back, status_code=303)
    else:
        response = JSONResponse(session_view(session).model_dump(mode="json"), status_code=201)
    response.headers["Cache-Control"] = "no-store"
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, token, max_age=SESSION_SECONDS, path="/", secure=secure, httponly=True, samesite="strict"
    )
    return response


@router.get("", summary="Look at the own session", responses=documented(NotFound, InvalidState))
def get_session(caller: CallerDep, response: Response) -> Session:
    """The session and its CSRF token, for reloaded pages."""
    response.headers["Cache-Control"] = "no-store"
    return session_view(_session(caller))


@router.delete(
    "", summary="End the own session", status_code=204, responses=documented(NotFound, InvalidState)
)
def log_out(caller: CallerDep, by: ActorDep, response: Response, store: SystemStoreDep) -> None:
    """The cookie opens nothing afterwards."""
    _session(caller)
    store.browser_sessions.close(caller.token, by=by)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


def _refused(request: Request, attempt: Attempt, by: Actor) -> Response:
    refusals: Refusals = request.app.state.refusals
    limited = None
    try:
        refusals.login(by, "session.open", attempt.key)
    except TooManyRequests as error:
        limited = error
    if attempt.back is not None:
        return login_page.login_response("This key does not work.", attempt.back, limited)
    raise Unauthorized(REFUSED) if limited is None else limited


def session_view(session: BrowserSessionRow) -> Session:
    """A session as its browser sees it."""
    return Session(
        csrf_token=session.csrf,
        expires_at=iso(session.expires_at),
        key_id=session.key.id,
        name=session.key.name,
        scopes=session.key.scopes,
        tenant=session.key.tenant,
    )


def _session(caller: Caller) -> BrowserSessionRow:
    if caller.session is None:
        raise NotFound("this call came with a key and has no session")
    return caller.session
