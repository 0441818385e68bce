"""Which addresses webhooks may reach, and a connection to the address that was checked.

A tenant chooses the URL, so a request must not reach what the tenant cannot: the machine itself, the private
network, or the metadata service of a cloud. The name is resolved once, every address behind it is checked,
and the connection goes to a checked one; the name stays in the Host header and in TLS. A redirect is an
answer like any other, and proxies of the environment are not used.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

import certifi
import httpcore

Address = IPv4Address | IPv6Address

PORTS = (443, 8443)
SECONDS = 10.0  # From the connection to the end of the answer's headers.
MAX_NAME = 253
MAX_ADDRESSES = 4  # Addresses of a host to try until one answers.
# IANA's registries of special-purpose addresses, whole (IPv4 and IPv6, as of 2025-10), and multicast: those
# with a use inside a network, anycast services (AS112, 6to4 relays), and IPv6 that carries IPv4. `is_global`
# knows another part of them in each version of Python.
SPECIAL = tuple(
    ip_network(one)
    for one in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
        *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128", "::ffff:0:0/96", "64:ff9b::/96"),
        *("64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2002::/16"),
        *("2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "ff00::/8"),
    )
)
UNICAST = ip_network("2000::/3")


class BadAddress(ValueError):
    """An address that webhooks may not reach; the message is for the tenant."""


class Reach:
    """The addresses that webhooks may reach; `allow`: names, addresses, networks allowed although private."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks = []
        for one in allow:
            try:
                self._networks.append(ip_network(one))
            except ValueError:
                self._names.add(one.lower())

    def check(self, url: str) -> tuple[SplitResult, list[Address]]:
        """A URL's parts and its host's addresses, all allowed; else, or without an address, BadAddress."""
        parts, port = _parts(url)
        host = parts.hostname or ""
        found = _resolved(host, port)
        allowed = host in self._names or all(self._listed(address) for address in found)
        if not allowed:
            if parts.scheme != "https":
                raise BadAddress("the scheme must be https")
            if port not in PORTS:
                raise BadAddress(f"port {port} is not allowed; allowed: {', '.join(map(str, PORTS))}")
            # One private address among public ones is how a name is made to pass here and arrive elsewhere.
            if not all(_public(address) or self._listed(address) for address in found):
                raise BadAddress("the host has an address that is not public")
        return parts, found

    def _listed(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def post(reach: Reach, url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> int:
    """Posts a body, and returns the status of the answer; the answer itself is not read.

    Raises BadAddress: the URL may not be reached; httpcore.NetworkError, httpcore.TimeoutException,
    httpcore.ProtocolError: no answer came in time.
    """
    parts, addresses = reach.check(url)
    with (
        _Pinned(addresses) as backend,
        httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context(cafile=certifi.where()), network_backend=backend, retries=0
        ) as pool,
    ):
        target = httpcore.URL(
            scheme=parts.scheme,
            host=parts.hostname or "",
            port=parts.port,
            target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        )
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), SECONDS)
        sent = [("Content-Length", str(len(body))), ("Connection", "close"), *headers]
        with pool.stream(
            "POST", target, headers=sent, content=body, extensions={"timeout": timeouts}
        ) as answer:
            return int(answer.status)


class _Pinned(httpcore.SyncBackend):
    """Connects to checked addresses; cuts when its time is over: bytes that drip evade single timeouts."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = [str(address) for address in addresses[:MAX_ADDRESSES]]
        self._timer: threading.Timer | None = None
        self._socket: socket.socket | None = None

    def __enter__(self) -> _Pinned:
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **options: Any
    ) -> httpcore.NetworkStream:
        del host, timeout
        stream = self._connected(port, *args, **options)
        connected: socket.socket = stream.get_extra_info("socket")
        self._socket = socket.socket(fileno=os.dup(connected.fileno()))  # A second one: TLS takes the first.
        self._timer = threading.Timer(SECONDS, self._cut)
        self._timer.daemon = True
        self._timer.start()
        return stream

    def _connected(self, port: int, *args: Any, **options: Any) -> httpcore.NetworkStream:
        seconds = SECONDS / len(self._addresses)
        for address in self._addresses[:-1]:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return super().connect_tcp(address, port, seconds, *args, **options)
        return super().connect_tcp(self._addresses[-1], port, seconds, *args, **options)

    def _cut(self) -> None:
        with suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)


def _parts(url: str) -> tuple[SplitResult, int]:
    if not url.isascii() or any(character <= " " or character in '\\"<>^`{|}\x7f' for character in url):
        raise BadAddress("it has a character that is not allowed in a URL")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"it cannot be read: {error}") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise BadAddress("it must be like https://example.com/path")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("it must not have a user name or password")
    if parts.fragment:
        raise BadAddress("it must not have a fragment")
    if len(parts.hostname) > MAX_NAME or "%" in parts.hostname:
        raise BadAddress("its host is not a name or an address")
    if port == 0:
        raise BadAddress("port 0 is not allowed")
    return parts, port or (443 if parts.scheme == "https" else 80)


def _resolved(host: str, port: int) -> list[Address]:
    with suppress(ValueError):
        return [ip_address(host)]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ip_address(entry[4][0]) for entry in found]
    except (OSError, UnicodeError, ValueError):
        addresses = []
    if not addresses:
        raise BadAddress("its host has no address")
    return addresses


def _public(address: Address) -> bool:
    """Whether an address is one of the internet's, and no IPv4 address in disguise."""
    if isinstance(address, IPv6Address) and (address not in UNICAST or address.scope_id is not None):
        return False
    if any(address in network for network in SPECIAL):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)
