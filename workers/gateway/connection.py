"""Calls to a gateway: over HTTPS, with the key of the workers, which may be exchanged while they run."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import httpx

from assay.service.contract import errors
from assay.service.store.rows import Claim
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.ledger import GatewayAway, KeyRefused

log = logging.getLogger(__name__)
PATH = "/api/v1/worker"
TIMEOUT_SECONDS = 30.0
KEPT_SECONDS = 3.0  # A connection without a call: less than the service keeps it
THROUGH_SECONDS = 600.0  # Without another question for presigned calls
LOCAL = ("localhost", "127.0.0.1", "::1")
KEY_REFUSED = frozenset({401, 403})  # It may not be known yet
AWAY = frozenset({408, 429}) | frozenset(range(500, 600))  # The service is busy, or starts


class Gateway:
    """A service's gateway; safe to use from several threads."""

    def __init__(self, settings: WorkerSettings, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        # The environment's proxy must not see calls to this machine.
        local = urlsplit(settings.gateway).hostname in LOCAL
        self._http = httpx.Client(
            base_url=settings.gateway.rstrip("/") + PATH,
            timeout=TIMEOUT_SECONDS,
            limits=httpx.Limits(keepalive_expiry=KEPT_SECONDS),
            transport=transport,
            trust_env=not local,
        )
        # Without the key of the workers, which is the gateway's.
        self._stores = httpx.Client(timeout=TIMEOUT_SECONDS, transport=transport, trust_env=not local)
        self._through_until = float("-inf")

    def call(self, name: str, body: Mapping[str, Any], *, wait: float = 0.0) -> Any:
        """The answer's JSON; `wait`: seconds that the service may take longer.

        Raises GatewayAway: no answer, or the key is not taken now; the contract's errors otherwise.
        """
        text = json.dumps(body, separators=(",", ":"))
        headers = {"Content-Type": "application/json", **self._authorization()}
        with reaching():
            timeout = httpx.Timeout(TIMEOUT_SECONDS, read=TIMEOUT_SECONDS + wait)
            answer = self._http.post(name, content=text, headers=headers, timeout=timeout)
        return _read(answer).json()

    def download(
        self, body: Mapping[str, Any], name: str = "/download"
    ) -> AbstractContextManager[httpx.Response]:
        """The open answer with a file or several, or 304. Raises as `call`."""
        return self._stream("POST", name, {}, json=dict(body))

    def fetch(
        self, name: str, params: Mapping[str, str], start: int = 0
    ) -> AbstractContextManager[httpx.Response]:
        """The open answer with a file, from a byte on; where the service names another place, from there.

        Another place does not get the key. Raises as `call`.
        """
        headers = {"Range": f"bytes={start}-"} if start else {}
        return self._stream("GET", name, headers, params=dict(params), follow_redirects=True)

    @contextmanager
    def _stream(
        self, method: str, name: str, headers: Mapping[str, str], **options: Any
    ) -> Iterator[httpx.Response]:
        told = {**headers, **self._authorization()}
        with reaching(), self._http.stream(method, name, headers=told, **options) as answer:
            if answer.is_error:
                answer.read()
                _read(answer)
            yield answer

    def presigned(
        self, claim: Claim, method: str, job: str, name: str, **facts: Any
    ) -> dict[str, Any] | None:
        """A call to the store itself; None: the file goes through the gateway. Raises as `call`."""
        if time.monotonic() < self._through_until:
            return None
        body = {"token": claim.token, "method": method, "job": job, "name": name, **facts}
        try:
            found: dict[str, Any] = self.call("/presign", body)
        except errors.NotFound:  # of an earlier version
            found = {"url": None}
        if found["url"] is None:
            self._through_until = time.monotonic() + THROUGH_SECONDS
            return None
        return found

    @contextmanager
    def stored(self, place: Mapping[str, Any], content: BinaryIO | None = None) -> Iterator[httpx.Response]:
        """The open answer of the store to a presigned call. Raises GatewayAway: none, or an error."""
        with (
            reaching(),
            self._stores.stream(
                "GET" if content is None else "PUT", place["url"], headers=place["headers"], content=content
            ) as answer,
        ):
            if answer.is_error:
                raise GatewayAway(f"the store of files answers {answer.status_code}")
            yield answer

    def upload(self, claim: Claim, path: Path, sha256: str) -> None:
        """Sends a file of a claim. Raises as `call`; OSError: it cannot be read."""
        headers = {"Assay-Claim": claim.token, **self._authorization()}
        params = {"name": path.name, "sha256": sha256}
        with path.open("rb") as file, reaching():
            _read(self._http.post("/upload", params=params, content=file, headers=headers))

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()
        self._stores.close()

    def _authorization(self) -> dict[str, str]:
        key = self._settings.read_worker_key()
        return {"Authorization": f"Bearer {key}"} if key else {}


@contextmanager
def reaching() -> Iterator[None]:
    """Turns a broken connection into GatewayAway."""
    try:
        yield
    except httpx.TransportError as error:
        raise GatewayAway(f"{type(error).__name__}: {error}") from error


def _read(answer: httpx.Response) -> httpx.Response:
    if not answer.is_error:
        return answer
    try:
        told = errors.ErrorEnvelope.model_validate_json(answer.content).error
    except ValueError:
        raise GatewayAway(f"{answer.url} answers {answer.status_code}, but not as a gateway") from None
    if answer.status_code in KEY_REFUSED:
        raise KeyRefused(told.message)
    if answer.status_code in AWAY:
        raise GatewayAway(f"{told.type}: {told.message}")
    known = {kind.status: kind for kind in (errors.NotFound, errors.InvalidState)}
    raise known.get(answer.status_code, errors.AssayError)(told.message, told.details)
