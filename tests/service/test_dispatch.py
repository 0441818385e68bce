"""The doorbell: over Redis to whoever listens, and never in the way of whoever rings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from assay.service.contract.fleet.doorbell import RING, broker, exchange, listeners
from assay.service.dispatch import CeleryDispatcher
from tests.support.servers import PrivateRedis
from tests.support.tls import TlsListener
from tests.support.workers import wait_for

JOB = "01jd3q0x5v8f7m2n9k4t6w1z0y"


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    with PrivateRedis("0123456789abcdef") as running:
        yield running


@pytest.fixture
def dispatcher(server: PrivateRedis) -> Iterator[CeleryDispatcher]:
    made = CeleryDispatcher(server.url)
    yield made
    made.close()


class Listener:
    """Hears what is rung, by device class."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._subscription = self._client.pubsub()
        self._subscription.psubscribe("/0.assay.*")
        wait_for(lambda: self._subscription.get_message(timeout=1))  # the answer to it

    def next(self, seconds: float = 60) -> tuple[str, dict[str, Any]] | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self._subscription.get_message(timeout=0.1)
            if message is not None:
                return message["channel"].decode(), json.loads(message["data"])
        return None

    def close(self) -> None:
        self._subscription.close()
        self._client.close()


@pytest.fixture
def listen() -> Iterator[Callable[[str], Listener]]:
    opened: list[Listener] = []

    def call(url: str) -> Listener:
        opened.append(Listener(url))
        return opened[-1]

    yield call
    for listener in opened:
        listener.close()


def test_a_job_for_any_device_concerns_all_workers() -> None:
    assert set(listeners("auto")) == {"cpu", "cuda"}
    assert listeners("cuda") == ("cuda",)


def test_a_ring_is_a_message_with_the_id_and_nothing_else(
    server: PrivateRedis, dispatcher: CeleryDispatcher, listen: Callable[[str], Listener]
) -> None:
    listener = listen(server.url)
    dispatcher.ring(JOB, "cuda")
    heard = listener.next()
    assert heard is not None
    channel, message = heard
    assert channel == f"/0.{exchange('cuda')['name']}/{RING}"
    assert message["headers"]["task"] == RING
    assert message["content-type"] == "application/json"
    assert JOB in message["headers"]["argsrepr"]


def test_nothing_piles_up_without_a_listener(server: PrivateRedis, dispatcher: CeleryDispatcher) -> None:
    for _ in range(20):
        dispatcher.ring(JOB, "auto")
    dispatcher.close()
    with redis.Redis.from_url(server.url) as client:
        assert [key for key in client.scan_iter() if client.type(key) == b"list"] == []


@pytest.mark.costly
def test_ringing_does_not_wait_for_a_server_that_is_away(listen: Callable[[str], Listener]) -> None:
    with PrivateRedis() as server:
        dispatcher = CeleryDispatcher(server.url)
        try:
            server.kill()
            for _ in range(5000):
                dispatcher.ring(JOB, "auto")
            assert len(dispatcher._pending) <= 2, "rings that wait are one ring"
            server.start()
            listener = listen(server.url)

            def heard() -> bool:
                dispatcher.ring(JOB, "cpu")
                return listener.next(0.5) is not None

            assert any(heard() for _ in range(40)), "it comes back with the server"
        finally:
            dispatcher.close()


def test_the_password_goes_to_no_server_of_an_unknown_authority(tmp_path: Path) -> None:
    for known in (False, True):
        with TlsListener(tmp_path) as listener:
            url = f"rediss://:0123456789abcdef@localhost:{listener.port}/0"
            dispatcher = CeleryDispatcher(f"{url}?ssl_ca_certs={listener.certificate}" if known else url)
            dispatcher.ring(JOB, "cpu")
            wait_for(lambda met=listener: met.said or met.refusals)
            dispatcher.close()
            assert (b"0123456789abcdef" in b"".join(listener.said)) is known


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("redis://:secret@db:6379/0", "redis://:secret@db:6379/0"),
        ("rediss://db", "rediss://db?ssl_cert_reqs=required"),
        ("rediss://db/0?ssl_ca_certs=/ca", "rediss://db/0?ssl_ca_certs=/ca&ssl_cert_reqs=required"),
        ("rediss://db/0?ssl_cert_reqs=none", "rediss://db/0?ssl_cert_reqs=none"),
    ],
)
def test_certificates_are_verified_unless_the_address_says_otherwise(given: str, told: str) -> None:
    assert broker(given) == told
