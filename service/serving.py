"""The HTTP server of both modes: uvicorn, which ends event streams on shutdown."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from assay.service import features
from assay.service.api.event_feed import Feed
from assay.service.connection_guard import BACKLOG, QUEUE, SWEEP_TICKS, ConnectionGuard, GuardedProtocol
from assay.service.contract.fleet import traces
from assay.service.contract.fleet.release import own_release
from assay.service.settings import Settings
from assay.service.store.connections import is_loopback
from assay.service.store.store import Store

log = logging.getLogger(__name__)
GRACEFUL_SHUTDOWN_SECONDS = 5
MAX_UNSENT_BYTES = 128 * 1024
SWITCH_SECONDS = 0.001
CANNOT_START = 1  # Exit codes of both modes.
WRONG_SETTINGS = 2


class CannotStart(Exception):
    """An external condition prevents the service from starting; the message names it."""


class Server(uvicorn.Server):
    """Serves an application made by `create_app`.

    By default uvicorn waits for open answers until the graceful shutdown times out and then cuts them off; an
    event stream is open as long as its job runs.
    """

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        self._app = app
        self._connections: ConnectionGuard = app.state.connections
        config.http = functools.partial(GuardedProtocol, self._connections)  # type: ignore[assignment]
        config.ws = "none"
        config.backlog = BACKLOG
        config.timeout_keep_alive = app.state.settings.keep_alive_seconds
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Makes sure that the open files suffice, and begins to accept."""
        self._connections.make_room()
        for listener in sockets or []:
            self._bound(listener)
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(QUEUE)  # asyncio takes one number for this and for its own turns

    def _bound(self, listener: socket.socket) -> None:
        """What the kernel keeps for a client, and for how long; connections have it from their listener."""
        seconds = self._app.state.settings.write_idle_seconds
        bounds = {"TCP_NOTSENT_LOWAT": MAX_UNSENT_BYTES, "TCP_USER_TIMEOUT": int(1000 * seconds)}
        for name, value in bounds.items():
            if hasattr(socket, name):  # the second exists on Linux only
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    async def on_tick(self, counter: int) -> bool:
        """Ends connections that are too slow, once a second."""
        if counter % SWEEP_TICKS == 0:
            self._connections.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends streams and waiting calls (their clients ask again), and then shuts down."""
        feed: Feed = self._app.state.feed
        feed.close()
        for close in self._app.state.at_stop:
            await close()
        await super().shutdown(sockets)


class Forwarded:
    """Believes what a proxy says of a request: the client's address from trusted proxies only.

    A proxy on this machine may say that the request came over https, which adds `Secure` to cookies. Its
    `X-Forwarded-For` is believed only where ASSAY_TRUSTED_PROXIES (or uvicorn's FORWARDED_ALLOW_IPS) names
    the proxy: every user of the machine can send one, and hide behind another address in the audit.

    `app`: the application; `trusted`: addresses and networks of proxies.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self._app = app
        given = [one.strip() for one in os.environ.get("FORWARDED_ALLOW_IPS", "").split(",") if one.strip()]
        names = [*trusted, *given]
        self._trusting: Any = ProxyHeadersMiddleware(app, "*" if "*" in names else names)  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application with the address and scheme of the client."""
        client = scope.get("client")
        if scope["type"] == "http" and client and is_loopback(client[0]):
            sent = Headers(scope=scope).get("x-forwarded-proto", "").strip()
            if sent in ("http", "https"):
                scope["scheme"] = sent
        await self._trusting(scope, receive, send)


def declare(settings: Settings, store: Store) -> None:
    """Declares the service's own release, and what the settings allow: other workers take no work."""
    release = own_release()
    if "source_sha256" not in release:
        log.warning(
            "this installation lacks a part of Assay's source, and cannot tell its hash: workers belong to"
            " its release if they have the same %s",
            "commit" if release.get("commit") else "version",
        )
    store.identities.declare(release, settings.allowed_identities)


def listen(host: str, port: int) -> socket.socket:
    """A socket listening on this host and port. Raises CannotStart: the port is taken or may not be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, because asyncio switches Nagle's algorithm off only where it is: without that,
    # each answer on a connection that is used again waits 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen()  # Not once all has started: of several on a port, only one listens.
    except OSError as error:
        listener.close()
        other = "host with ASSAY_HOST (`assay serve --host ADDRESS`)"
        if not isinstance(error, socket.gaierror) and error.errno != errno.EADDRNOTAVAIL:
            other = "port with ASSAY_PORT (`assay serve --port N`)"
        raise CannotStart(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another {other}"
        ) from None
    return listener


def run(app: FastAPI, listener: socket.socket, log_level: str) -> None:
    """Serve until SIGINT or SIGTERM. Raises CannotStart: it did not start, or could not sign."""
    try:
        for module in features.modules("startup"):
            module.check(app.state.settings)
    except (ValueError, OSError) as error:
        raise CannotStart(str(error)) from None
    traces.set_up("assay" if app.state.settings.mode == "embedded" else "assay-service")
    config = uvicorn.Config(
        Forwarded(app, app.state.settings.trusted_proxies),
        log_level=log_level.lower(),
        proxy_headers=False,  # see `Forwarded`
        access_log=False,  # ours has the request's id, see service/telemetry.py
        log_config=None,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS,
    )
    server = Server(app, config)
    # uvicorn does not say where it serves when it is given a socket.
    log.info("serving at %s, with its documentation at %s/docs", *[address_of(listener)] * 2)
    settle()
    with ExitStack() as running:
        for module in features.modules("delivery"):
            running.enter_context(closing(module.start(app.state.store, app.state.settings)))
        server.run(sockets=[listener])
    if not server.started:
        raise CannotStart("the service did not start; the log above says why")


def settle() -> None:
    """Latency under concurrent requests: no garbage search of what startup built, and threads yield soon."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


def unwind(number: int, frame: object) -> None:
    """Makes SIGTERM unwind the stack as SIGINT does, so that workers are stopped; uvicorn raises it again."""
    raise KeyboardInterrupt


def address_of(listener: socket.socket) -> str:
    """The address that a listener is bound to, as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"
