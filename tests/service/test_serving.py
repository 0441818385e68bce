"""Whose word is taken for the address and the scheme of a request."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.service import serving
from assay.service.serving import SWITCH_SECONDS, CannotStart, Forwarded, declare, listen, settle
from assay.service.settings import Settings
from assay.service.store.store import open_store

SENT = {"x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "https"}


def seen(
    client: tuple[str, int] | None, trusted: list[str], **headers: str
) -> tuple[tuple[str, int] | None, str]:
    """Client and scheme of a request as the application sees them."""
    found: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.update(scope)

    given = SENT | {name.replace("_", "-"): value for name, value in headers.items()}
    sent = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "client": client, "scheme": "http", "headers": sent}
    asyncio.run(Forwarded(app, trusted)(scope, None, None))  # type: ignore[arg-type]
    return found["client"], found["scheme"]


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_by_default_a_local_proxy_sets_the_scheme_and_no_proxy_the_address(host: str) -> None:
    assert seen((host, 5), []) == ((host, 5), "https")
    assert seen((host, 5), [], x_forwarded_proto="ftp")[1] == "http"


def test_others_say_nothing() -> None:
    for client in (("192.0.2.1", 5), None):
        assert seen(client, []) == (client, "http")
    assert seen(("192.0.2.1", 5), ["192.0.2.2"]) == (("192.0.2.1", 5), "http")


def test_trusted_proxies_say_both() -> None:
    assert seen(("192.0.2.1", 5), ["192.0.2.1"]) == (("198.51.100.7", 0), "https")
    assert seen(("172.18.0.1", 5), ["172.16.0.0/12"]) == (("198.51.100.7", 0), "https")
    assert seen(("127.0.0.1", 5), ["127.0.0.1"]) == (("198.51.100.7", 0), "https")


def test_what_the_client_put_before_the_proxy_is_not_believed() -> None:
    sent = "10.0.0.1, 203.0.113.9, 172.18.0.2"
    assert seen(("172.18.0.1", 5), ["172.16.0.0/12"], x_forwarded_for=sent)[0] == ("203.0.113.9", 0)


def test_the_variable_of_uvicorn_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "192.0.2.1, 192.0.2.2")
    assert seen(("192.0.2.2", 5), []) == (("198.51.100.7", 0), "https")
    assert seen(("192.0.2.3", 5), []) == (("192.0.2.3", 5), "http")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert seen(("192.0.2.3", 5), [])[0] == ("198.51.100.7", 0)


@pytest.mark.parametrize(
    ("release", "name", "said"),
    [
        ({"version": "1.0", "commit": None, "source_sha256": "ab" * 32}, "ab" * 32, ""),
        ({"version": "1.0", "commit": "c0ffee"}, "c0ffee", "if they have the same commit"),
        ({"version": "1.0", "commit": None}, "1.0", "if they have the same version"),
    ],
)
def test_a_service_declares_its_release_and_says_where_it_does_not_know_its_source(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    release: Any,
    name: str,
    said: str,
) -> None:
    monkeypatch.setattr(serving, "own_release", lambda: release)
    with open_store(f"sqlite:///{tmp_path / 'assay.sqlite'}") as store:
        declare(Settings(state=tmp_path, allowed_identities=["b2" * 8]), store)
        assert {one.name for one in store.identities.all()} == {name, "b2" * 8}
    assert ("lacks a part of Assay's source" in caplog.text) == bool(said)
    assert said in caplog.text


def test_threads_of_a_service_yield_soon() -> None:
    before = sys.getswitchinterval()
    try:
        settle()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
        assert gc.get_freeze_count() > 0
    finally:
        sys.setswitchinterval(before)
        gc.unfreeze()


@pytest.mark.parametrize("host", ["300.1.1.1", "203.0.113.7"])
def test_a_host_that_is_not_of_this_machine_is_told_as_the_host(host: str) -> None:
    with pytest.raises(CannotStart, match=r"choose another host with ASSAY_HOST \(`assay serve --host"):
        listen(host, 0)
