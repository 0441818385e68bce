"""Error handlers: every error leaves the service as the contract's envelope."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from assay.service.contract.errors import (
    AssayError,
    ErrorDetail,
    ErrorEnvelope,
    Forbidden,
    HeadersTooLarge,
    Internal,
    InvalidSpec,
    MalformedJson,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    Problem,
    RequestTimeout,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
    nearest_name,
)
from assay.service.contract.problems import (
    MAX_MESSAGE,
    MAX_TEXT,
    Problems,
    message_of,
    nearest,
    readable,
    show,
)

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 5
UNAVAILABLE = (  # The request may have taken effect: a connection can break between the commit and the answer
    "the database is away, try again; a submission with the same Idempotency-Key makes no second job"
)
API = "/api/"
JSON = "application/json"
PROBLEM = "application/problem+json"
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="assay"'}

EVERYWHERE: tuple[type[AssayError], ...] = (  # What the layers around the routes answer.
    MalformedRequest, Unauthorized, Forbidden, RequestTimeout, TooLarge, InvalidSpec, TooManyRequests,
    HeadersTooLarge, Internal, Unavailable,
)  # fmt: skip

_BY_STATUS: dict[int, type[AssayError]] = {
    error.status: error
    for error in (MalformedJson, Forbidden, NotFound, MethodNotAllowed, TooLarge, UnsupportedMediaType)
}


def install(app: FastAPI) -> None:
    """Registers the handlers; unexpected exceptions are left to the error boundary."""
    app.add_exception_handler(AssayError, _assay_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(RequestValidationError, _request_validation)
    app.add_exception_handler(DBAPIError, _database_error)
    app.add_exception_handler(PoolTimeout, _database_error)


class ErrorResponse(JSONResponse):
    """An error as the envelope, or as `application/problem+json` for a client that prefers it."""

    def __init__(self, error: AssayError, headers: dict[str, str] | None = None) -> None:
        self._error = error
        headers = {"Vary": "Accept", **(headers or {})}
        super().__init__(error.envelope().model_dump(mode="json"), error.status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the form that the request's `Accept` asks for."""
        if not prefers_problem(Headers(scope=scope).getlist("accept")):
            await super().__call__(scope, receive, send)
            return
        path = scope.get("raw_path") or scope["path"].encode()
        problem = self._error.problem(readable(path.decode("latin-1"), MAX_MESSAGE))
        kept = {name: value for name, value in self.headers.items() if not name.startswith("content-")}
        answer = Response(problem.model_dump_json(), self.status_code, kept, PROBLEM)
        await answer(scope, receive, send)


def prefers_problem(accept: list[str]) -> bool:
    """Whether `Accept` headers name `application/problem+json`, and not below `application/json`."""
    weights: dict[str, float] = {}
    for item in ",".join(accept).lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        given = [part[2:] for part in parameters if part.startswith("q=")]
        try:
            weights[name] = float(given[0]) if given else 1.0
        except ValueError:
            weights[name] = 0.0
    return weights.get(PROBLEM, 0.0) > 0 and weights[PROBLEM] >= weights.get(JSON, 0.0)


def error_response(error: AssayError, headers: dict[str, str] | None = None) -> Response:
    """The HTTP answer for an error; values given by the user are made safe to send back."""
    details = [_safe_detail(detail) for detail in error.details]
    safe = type(error)(readable(error.message, MAX_MESSAGE), details)
    if isinstance(error, Unavailable):
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS), **(headers or {})}
    if isinstance(error, TooManyRequests):
        after = {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
        headers = {**after, **error.headers, **(headers or {})}
    if isinstance(error, Unauthorized):
        headers = {**CHALLENGE, **(headers or {})}
    return ErrorResponse(safe, headers)


def documented(*errors: type[AssayError]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for OpenAPI: these errors, and those that every route can answer."""
    responses: dict[int | str, dict[str, Any]] = {}
    for error in (*errors, *EVERYWHERE):
        summary = (error.__doc__ or "").strip().splitlines()[0]
        known = responses.get(error.status)
        text = f"`{error.type}`: {summary}"
        if known and text not in known["description"]:
            text = f"{known['description']} {text}"
        responses[error.status] = {
            "model": ErrorEnvelope,
            "description": text,
            "content": {PROBLEM: {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}},
        }
    return dict(sorted(responses.items(), key=lambda item: int(item[0])))


def _assay_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AssayError)
    return answer(request, error)


def answer(request: Request, error: AssayError) -> Response:
    """The answer for an error: a page where a browser opens an address, else as `error_response`."""
    page = getattr(request.app.state, "error_page", None)
    opened = "text/html" in request.headers.get("accept", "").lower()
    if page is None or not opened or request.url.path.startswith(API):
        return error_response(error)
    made: Response = page(request, error)
    return made


def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return answer(request, _no_route(request))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = ", ".join(_methods_of(request, headers.get("Allow", "")))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allowed})
        message = f"{request.method} is not allowed here; allowed: {allowed}"
        refused = answer(request, MethodNotAllowed(message))
        refused.headers["Allow"] = allowed
        return refused
    kind = _BY_STATUS.get(error.status_code, MalformedJson if error.status_code < 500 else Internal)
    return error_response(kind(str(error.detail)), headers)


def _no_route(request: Request) -> NotFound:
    """The error of an unknown path, with the known path whose every part is like it, or that begins it."""
    path = request.url.path
    given, known = path[:MAX_TEXT].split("/"), set()
    for route in request.app.state.routes if path.isprintable() else ():
        parts = route.path.split("/")
        near = [
            own if part[:1] == "{" else nearest_name(own, [part])
            for part, own in zip(parts, given, strict=False)
        ]
        if None not in near and len(given) - len(parts) in (0, 1):
            known.add("/".join(map(str, near)))
    found = nearest_name("/".join(given), known)
    return NotFound(f"no route {path[:100]!r}; {f'meant: {found}? ' if found else ''}see /docs")


def _methods_of(request: Request, named: str) -> list[str]:
    """All methods of a path; the framework names only the methods of the first route that has it."""
    path = request.url.path
    routes = [route for route in request.app.state.routes if route.path_regex.match(path)]
    methods = {method for route in routes for method in route.methods} or set(named.split(", "))
    return sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])})


def _request_validation(request: Request, error: Exception) -> Response:
    """Wrong query parameters and headers; bodies are checked by the catalog."""
    assert isinstance(error, RequestValidationError)
    problems = Problems()
    add_wrong_values(problems, error.errors())
    try:
        problems.raise_if_any()
    except InvalidSpec as invalid:
        return answer(request, invalid)
    raise error


def add_wrong_values(problems: Problems, errors: Iterable[Mapping[str, Any]]) -> None:
    """Notes errors of pydantic at places without a problem."""
    known = [detail.loc for detail in problems.details]
    for item in errors:
        loc = tuple(part for part in item["loc"] if isinstance(part, str | int))
        message = message_of(item)
        allowed = _allowed(item, message)
        near = nearest(item.get("input"), allowed) if isinstance(allowed, list) else None
        message = "unknown value" if isinstance(allowed, list) else message
        if [*loc] not in known:
            problems.add(loc, message, given=item.get("input"), allowed=allowed, nearest=near)


def _allowed(item: Mapping[str, Any], message: str) -> list[str] | str | None:
    """Values that pydantic allows: the names in "'a', 'b' or 'c'", or what the message says."""
    if "expected" in (item.get("ctx") or {}):
        return [*filter(None, re.findall(r"'([^']*)'", str(item["ctx"]["expected"])))]
    words = re.match(r"must (?:be|have) (.+)", message)
    return words and words[1]


def _database_error(request: Request, error: Exception) -> Response:
    away = unavailable(error)
    if away is None:
        raise error
    logger.warning("database away in %s %s: %s", request.method, request.url.path, error)
    return answer(request, away)


def unavailable(error: Exception) -> Unavailable | None:
    """The error for a database that is away; None for its other errors, which are defects."""
    away = isinstance(error, OperationalError | PoolTimeout) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )
    return Unavailable(UNAVAILABLE) if away else None


def _safe_detail(detail: ErrorDetail) -> ErrorDetail:
    return ErrorDetail(
        loc=[readable(part) if isinstance(part, str) else part for part in detail.loc],
        message=readable(detail.message, MAX_MESSAGE),
        given=show(detail.given),
        allowed=detail.allowed,
        nearest=detail.nearest,
    )
