"""Where webhooks may go: public addresses over https, and what the operator has allowed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpcore
import pytest

from assay.service.webhooks import address as webhook_address
from assay.service.webhooks.address import BadAddress, Reach, post

PUBLIC = "93.184.216.34"
Answers = Callable[[str], list[str]]


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes every name resolve to these addresses; addresses stay what they are."""

    def resolves(*addresses: str) -> None:
        def look(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
            try:
                socket.inet_pton(_family(host), host)
                found = [host]
            except OSError:
                found = list(addresses)
            if not found:
                raise socket.gaierror(-2, "Name or service not known")
            return [(_family(address), socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

        monkeypatch.setattr(webhook_address.socket, "getaddrinfo", look)

    resolves(PUBLIC)
    return resolves


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "https://example.com:8443/hook?x=1",
        f"https://{PUBLIC}/",
        "https://192.88.98.255/",
        "https://192.175.49.0/",
        "https://[2620:4f:8001::1]/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/",
    ],
)
def test_public_addresses_over_https_are_allowed(resolves: Any, url: str) -> None:
    parts, _ = Reach().check(url)
    assert parts.scheme == "https"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "5f00::1",
        "3fff::1",
        "192.88.99.1",  # a relay of 6to4
        "192.31.196.1",  # AS112
        "192.175.48.255",
        "2620:4f:8000::1",
        "192.52.193.1",  # AMT
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
    ],
)
def test_other_addresses_are_not(resolves: Any, address: str) -> None:
    url = f"https://[{address}]/" if ":" in address else f"https://{address}/"
    with pytest.raises(BadAddress, match="not public"):
        Reach().check(url)
    resolves(PUBLIC, address)  # nor a name that has one of them among others
    with pytest.raises(BadAddress, match="not public"):
        Reach().check("https://example.com/")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://example.com/", "scheme must be https"),
        ("ftp://example.com/", "must be like"),
        ("file:///etc/passwd", "must be like"),
        ("example.com", "must be like"),
        ("https:///x", "must be like"),
        ("https://user:secret@example.com/", "user name"),
        ("https://example.com/#x", "fragment"),
        ("https://example.com:22/", "port 22"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:99999/", "cannot be read"),
        ("https://[::1/", "cannot be read"),
        ("https://[fe80::1%25eth0]/", "name or an address"),
        ("https://example.com/a b", "character"),
        ("https://example.com/\r\nHost: x", "character"),
        ("https://example.com\\@127.0.0.1/", "character"),
        ("https://ex\u00e4mple.com/", "character"),
        ("https://" + "a" * 254 + "/", "name or an address"),
    ],
)
def test_odd_urls_are_refused(resolves: Any, url: str, said: str) -> None:
    with pytest.raises(BadAddress, match=said):
        Reach().check(url)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"])
def test_other_ways_to_write_this_machine_are_refused(resolves: Any, host: str) -> None:
    """They are resolved as the connection would resolve them: what a host looks like says nothing."""
    resolves("127.0.0.1")
    with pytest.raises(BadAddress, match="not public"):
        Reach().check(f"https://{host}/")


def test_a_name_without_address_is_refused(resolves: Any) -> None:
    resolves()
    with pytest.raises(BadAddress, match="no address"):
        Reach().check("https://example.com/")


@pytest.mark.parametrize("allow", ["hook.internal", "10.1.2.3", "10.1.0.0/16"])
def test_what_the_operator_allows_may_be_private_and_plain(resolves: Any, allow: str) -> None:
    resolves("10.1.2.3")
    assert [str(one) for one in Reach([allow]).check("http://hook.internal:9000/x")[1]] == ["10.1.2.3"]
    resolves("10.2.2.3", "10.1.2.3")
    if allow != "hook.internal":
        with pytest.raises(BadAddress):
            Reach([allow]).check("http://hook.internal:9000/x")


@contextmanager
def receiver(answer: Callable[[socket.socket, bytes], None]) -> Iterator[int]:
    """A server that reads a request and answers it as it is told; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    request = b""
                    while b"\r\n\r\n" not in request:
                        request += connection.recv(65536)
                    with suppress(OSError):
                        answer(connection, request)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


LOCAL = Reach(["127.0.0.1"])


def test_the_checked_address_is_connected_to_and_the_host_is_kept(resolves: Any) -> None:
    """A name that resolves to another address at the second look does not move the connection."""
    asked: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(request)
        resolves("203.0.113.1")
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    resolves("127.0.0.1")
    with receiver(answer) as port:
        assert post(LOCAL, f"http://hook.example:{port}/a?b=c", b"{}", [("webhook-id", "x")]) == 204
    assert asked[0].startswith(b"POST /a?b=c HTTP/1.1\r\n")
    assert f"Host: hook.example:{port}".encode() in asked[0]


def test_redirects_are_not_followed_and_proxies_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    asked: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(request)
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n")

    with receiver(answer) as port:
        assert post(LOCAL, f"http://127.0.0.1:{port}/", b"{}", []) == 302
    assert len(asked) == 1


@pytest.mark.parametrize(
    "drip",
    [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"],
    ids=["headers", "body"],
)
def test_an_answer_that_comes_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch, drip: bytes) -> None:
    monkeypatch.setattr(webhook_address, "SECONDS", 0.3)
    stop = threading.Event()

    def answer(connection: socket.socket, request: bytes) -> None:
        for place in range(len(drip)):
            connection.sendall(drip[place : place + 1])
            if stop.wait(0.01):
                return

    with receiver(answer) as port:
        if b"Content-Length" in drip:
            monkeypatch.setattr(webhook_address, "SECONDS", 30.0)
            assert post(LOCAL, f"http://127.0.0.1:{port}/", b"{}", []) == 200  # the body is not read
        else:
            with pytest.raises((httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)):
                post(LOCAL, f"http://127.0.0.1:{port}/", b"{}", [])
        stop.set()


def test_headers_without_end_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X: " + b"y" * 60_000 + b"\r\n")

    with receiver(answer) as port, pytest.raises(httpcore.ProtocolError):
        post(LOCAL, f"http://127.0.0.1:{port}/", b"{}", [])
