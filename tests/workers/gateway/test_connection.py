"""Calls to a gateway: what counts as away, what is final, and a key that is exchanged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.contract.errors import AssayError, NotFound
from assay.workers.gateway.connection import Gateway
from assay.workers.supervision.ledger import GatewayAway, absence
from tests.support.workers import settings


def gateway(tmp_path: Path, answer: Any, **changes: Any) -> Gateway:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    chosen = settings(tmp_path, gateway="http://gateway.example/", **changes)
    return Gateway(chosen, httpx.MockTransport(handle))


def told(status: int, kind: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"type": kind, "message": "said", "details": []}})


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("late"),
        told(503, "unavailable"),
        told(500, "internal"),
        told(429, "too_many_requests"),
        told(401, "unauthorized"),
        httpx.Response(404, text="<html>another server</html>"),
    ],
)
def test_a_gateway_without_its_own_answer_is_away(tmp_path: Path, answer: Any) -> None:
    with pytest.raises(GatewayAway):
        gateway(tmp_path, answer).call("/renew", {})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (told(401, "unauthorized"), r"^the gateway refuses the key \(ASSAY_WORKER_KEY"),
        (told(403, "forbidden"), r"^the gateway refuses the key \(ASSAY_WORKER_KEY"),
        (told(503, "unavailable"), r"^the gateway is away: unavailable: said"),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_gateway(tmp_path: Path, answer: Any, words: str) -> None:
    with pytest.raises(GatewayAway) as raised:
        gateway(tmp_path, answer).call("/renew", {})
    assert re.search(words, absence(raised.value))


def test_a_refusal_is_final(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="said"):
        gateway(tmp_path, told(404, "not_found")).call("/fail", {})
    for status, kind in ((409, "invalid_state"), (422, "invalid_spec")):
        with pytest.raises(AssayError, match="said"):
            gateway(tmp_path, told(status, kind)).call("/renew", {})


def test_the_key_is_read_at_each_call_and_numbers_that_are_none_are_sent(tmp_path: Path) -> None:
    seen: list[tuple[str, str, bytes]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((str(request.url), request.headers["authorization"], request.content))
        return httpx.Response(200, json={"ok": 1})

    file = tmp_path / "key"
    file.write_text("first\n")
    found = gateway(tmp_path, answer, worker_key_file=file)
    assert found.call("/finish", {"x": float("inf")}) == {"ok": 1}
    file.write_text("second\n")
    found.call("/gone", {})
    url = "http://gateway.example/api/v1/worker"
    assert seen == [
        (f"{url}/finish", "Bearer first", b'{"x":Infinity}'),
        (f"{url}/gone", "Bearer second", b"{}"),
    ]
