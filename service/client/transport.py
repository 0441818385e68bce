"""HTTP transport of the client: requests, answers and errors."""

from __future__ import annotations

import copy
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ValidationError

from assay.service.contract import errors
from assay.service.contract.extras import DISTRIBUTION, version_of
from assay.service.contract.fleet.version import ServiceVersion
from assay.service.contract.problems import Loc, Problems
from assay.service.contract.results import Page

if TYPE_CHECKING:  # A third of the start of `assay --help`, which calls no service.
    import httpx

DEFAULT_URL, API = "http://127.0.0.1:8000", "/api/v1"
KEY_VARIABLE, SUBMIT_ATTEMPTS = "ASSAY_KEY", 3
SILENCE_SECONDS = 45.0  # longer than the 15 seconds between comments in a stream of events
RECONNECT_SECONDS = 60.0  # allowed absence of the service while polling

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item", bound=BaseModel)


class EndingState(Protocol):
    """State of something that ends."""

    @property
    def terminal(self) -> bool:
        """Whether it is final."""


class Ends(Protocol):
    """Something with a state that becomes final: a job, a study."""

    @property
    def state(self) -> EndingState:
        """Its present state."""


Ending = TypeVar("Ending", bound=Ends)
Waiting = TypeVar("Waiting", bound=Callable[..., Any])
POLLED = "polled"


def polling(look: str) -> Callable[[Waiting], Waiting]:
    """Marks a method that polls another until the end: the client for asyncio polls without a thread."""

    def marked(method: Waiting) -> Waiting:
        setattr(method, POLLED, look)
        return method

    return marked


class Connection:
    """The connections to a service. Close it, or use it in a `with` block."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        import httpx

        self.url = url.rstrip("/")
        self.state: Path | None = None  # The folder of a service that ends with this client
        self._kept: dict[str, tuple[str, bytes]] = {}
        local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        key = os.environ.get(KEY_VARIABLE, "").strip() if key is None else key
        # The environment's proxy must not see, or fail, calls to this machine.
        self._http = httpx.Client(
            base_url=self.url,
            headers=authorization(key),
            timeout=timeout,
            transport=transport,
            trust_env=not local,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return self._object(self._call(method, path, **options).content)

    def _submitted(
        self, path: str, spec: Mapping[str, Any] | str | bytes, idempotency_key: str | None
    ) -> dict[str, Any]:
        """Posts a spec, again when the connection breaks: under a key, so never twice."""
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}
        for attempt in range(1, SUBMIT_ATTEMPTS + 1):
            try:
                return self._json("POST", path, headers=headers, body=spec)
            except Unreachable:
                if attempt == SUBMIT_ATTEMPTS:
                    raise
                time.sleep(0.2 * attempt)
        raise AssertionError("the last attempt returns or raises")

    def _pages(self, kind: type[Item], path: str, params: Mapping[str, Any]) -> Iterator[Item]:
        cursor: dict[str, str] = {}
        while True:
            page = parsed(Page[kind], self._json("GET", path, params={**params, **cursor}))  # type: ignore[valid-type]
            yield from page.items
            if page.next_cursor is None:
                return
            cursor = {"cursor": page.next_cursor}

    @staticmethod
    def _ended(
        what: str,
        look: Callable[[], Ending],
        *,
        callback: Callable[[Ending], None] | None,
        poll_seconds: float,
        timeout_seconds: float | None,
    ) -> Ending:
        """Polls until the state is final; the service may be away for a minute."""
        begun = seen = time.monotonic()
        while True:
            try:
                found = look()
            except errors.Unavailable as error:
                if time.monotonic() - seen > RECONNECT_SECONDS:
                    raise lost(error, what) from error
            else:
                seen = time.monotonic()
                if callback is not None:
                    callback(found)
                if found.state.terminal:
                    return found
            if timeout_seconds is not None and time.monotonic() - begun > timeout_seconds:
                raise TimeoutError(f"{what} has not ended within {timeout_seconds} s")
            time.sleep(poll_seconds)

    def _json_once(self, path: str, **options: Any) -> dict[str, Any]:
        """The answer of a GET, kept while its ETag is the same."""
        query = path + repr(options)
        etag, body = self._kept.get(query, ("", b""))
        headers = {"If-None-Match": etag} if etag else {}
        response = self._call("GET", path, headers=headers, **options)
        if response.status_code != HTTPStatus.NOT_MODIFIED:
            body = response.content
            if etag := response.headers.get("etag", ""):
                self._kept[query] = (etag, body)
        return self._object(body)

    def version(self) -> ServiceVersion:
        """Versions of the service and its API, and the code of its workers."""
        return parsed(ServiceVersion, self._json("GET", "/version"))

    def other_version(self) -> str:
        """The service's other version, in words; empty where it is this client's."""
        mine = version_of(DISTRIBUTION)
        try:
            theirs = self._json("GET", "/version").get("version")
        except errors.NotFound:
            theirs = "older, without /version"
        except errors.AssayError:
            return ""
        said = f" (the service's version is {str(theirs)[:40]}, this client's {mine}; install the service's)"
        return "" if theirs == mine else said

    def _object(self, body: bytes) -> dict[str, Any]:
        found = None
        with suppress(ValueError):
            found = json.loads(body)
        if not isinstance(found, dict):
            raise BadAnswer(f"{self.url} answers, but not as an Assay service")
        return _Answered(found, self)

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | str | bytes | None = None,
        file: BinaryIO | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        """Sends a call; `timeout` is in seconds, None for the connection's timeout."""
        content: dict[str, Any] = {}
        sent = dict(headers or {})
        if file is not None:
            content = {"content": file}
            sent["Content-Type"] = "application/octet-stream"
        elif isinstance(body, str | bytes):
            content = {"content": body}
            sent["Content-Type"] = "application/json"
        elif body is not None:
            _check_numbers(body)
            content = {"json": body}
        with reaching(self.url):
            response = self._http.request(
                method, path, params=params, headers=sent, timeout=timeout or self._http.timeout, **content
            )
        if response.is_error:
            raise error_of(response)
        return response

    @contextmanager
    def _streamed(self, path: str, **options: Any) -> Iterator[httpx.Response]:
        """The answer of a GET, to be read as it arrives."""
        with reaching(self.url), self._http.stream("GET", path, **options) as response:
            if response.is_error:
                response.read()
                raise error_of(response)
            yield response

    @contextmanager
    def _event_lines(self, path: str, last: int) -> Iterator[Iterator[str] | None]:
        """The lines of a stream of events after an event, or None at its end."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
        usual = self._http.timeout
        timeout = (usual.connect, max(SILENCE_SECONDS, usual.read or 0), usual.write, usual.pool)
        with self._streamed(path, headers=headers, timeout=timeout) as response:
            if response.status_code == HTTPStatus.NO_CONTENT:
                yield None
                return
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise BadAnswer(f"{self.url} answers, but not with events")
            yield response.iter_lines()


def lost(error: errors.Unavailable, what: str) -> errors.Unavailable:
    """The same error, which names the followed `job ID` or `study ID` and how to go on."""
    kind, _, name = what.partition(" ")
    command = f"assay status {name} --wait" if kind == "job" else f"assay studies watch {name}"
    more = f"{what} is kept there: once the service is back, `{command}` follows it"
    return type(error)(f"{error.message}; {more}", error.details)


def naming(items: Iterator[Item], what: str) -> Iterator[Item]:
    """The items; where the service is lost, the error names what was followed."""
    try:
        yield from items
    except errors.Unavailable as error:
        raise lost(error, what) from error


class _Answered(dict[str, Any]):
    """A JSON object, with the connection that it came over."""

    def __init__(self, found: Mapping[str, Any], connection: Connection) -> None:
        super().__init__(found)
        self.connection = connection

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """A copy is a plain dict: connections cannot be copied."""
        return dict, (dict(self),)


class Unreachable(errors.Unavailable):
    """No server answers at the address, or the connection broke."""

    type = "unreachable"


class BadAnswer(errors.AssayError):
    """Not this service's answer, or a download of another hash."""

    type = "bad_answer"


def _check_numbers(body: Mapping[str, Any]) -> None:
    problems = Problems()
    waiting: list[tuple[Loc, Any]] = [((), body)]
    while waiting:
        loc, value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            problems.add(loc, "must be a finite number", given=value, allowed="finite numbers")
        elif isinstance(value, Mapping):
            waiting += [((*loc, str(name)), item) for name, item in reversed(list(value.items()))]
        elif isinstance(value, list | tuple):
            waiting += [((*loc, index), item) for index, item in reversed(list(enumerate(value)))]
    problems.raise_if_any()


def _tree(kind: type[errors.AssayError]) -> Iterator[type[errors.AssayError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _tree(child)


ERRORS = {kind.type: kind for kind in _tree(errors.AssayError) if kind.__module__ == errors.__name__}


def authorization(key: str) -> dict[str, str]:
    """The header that sends an API key; none for an empty one."""
    if not key:
        return {}
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise errors.Unauthorized("the API key holds spaces or other characters that no key has")
    return {"Authorization": f"Bearer {key}"}


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turns a failed connection into an error of this tree."""
    import httpx

    try:
        yield
    except httpx.LocalProtocolError as error:
        raise errors.InvalidSpec(f"this cannot be sent: {error}") from error
    except httpx.TransportError as error:
        raise Unreachable(f"no service can be reached at {url} ({type(error).__name__}: {error})") from error
    except httpx.InvalidURL as error:
        raise Unreachable(f"{url} is not an address: {error}") from error


def error_of(response: httpx.Response) -> errors.AssayError:
    """The contract's error in an answer, by its type."""
    try:
        body = errors.ErrorEnvelope.model_validate_json(response.content).error
    except ValidationError:
        return BadAnswer(f"{response.url} answers {response.status_code}, but not as an Assay service")
    return ERRORS.get(body.type, errors.AssayError)(body.message, body.details)


def parsed(model: type[Model], body: dict[str, Any]) -> Model:
    """The answer as a model, without fields that a later service added; else BadAnswer: versions differ."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        later = [fault["loc"] for fault in error.errors() if fault["type"] == "extra_forbidden"]
        if len(later) == error.error_count() and (known := _without(body, later)) is not None:
            return parsed(model, known)
        other = body.connection.other_version() if isinstance(body, _Answered) else ""
        raise BadAnswer(f"the answer is not a {model.__name__} of this version{other}: {error}") from error


def _without(body: Mapping[str, Any], places: Sequence[tuple[Any, ...]]) -> dict[str, Any] | None:
    """The answer without the fields at these places; None where it has none of them."""
    kept, dropped = copy.deepcopy(dict(body)), False
    for *way, last in places:
        inside: Any = kept
        for key in way:  # a word that is no key names a member of a union
            if isinstance(inside, list) or key in inside:
                inside = inside[key]
        if isinstance(inside, dict) and last in inside:
            del inside[last]
            dropped = True
    return kept if dropped else None


def part(text: str) -> str:
    """One path segment: quoted, never several segments, or none."""
    if text in ("", ".", ".."):
        raise errors.NotFound(f"{text!r} is not a name")
    return quote(text, safe="")
