"""Connections of the HTTP server: their number, and the time that each may take.

uvicorn bounds neither. `GuardedProtocol` is its protocol with limits on headers, bodies and answers;
`ConnectionGuard` has a server's connections, and its `sweep` finds the slow connections once a second: a
timer for each request would cost more.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import select
import socket
import struct
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from assay.service.api.errors import error_response
from assay.service.contract.errors import (
    AssayError,
    HeadersTooLarge,
    MalformedRequest,
    RequestTimeout,
    Unavailable,
)
from assay.service.middleware import SAFE_HEADERS
from assay.service.settings import Settings

logger = logging.getLogger(__name__)

SWEEP_TICKS = 10  # of uvicorn's main loop, which has ten a second
MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 100
MAX_PIPELINED = 16
SMALL_REST = 64 * 1024  # The rest of a body this small is read to its end, and the connection is used again.
# A refused body: how much of it is thrown away, and for how long, so that its sender reads the answer.
LINGER_BYTES = 64 * 1024 * 1024
LINGER_SECONDS = 10.0
LINGER_IDLE_SECONDS = 2.0
QUEUE, BACKLOG = 1024, 128  # Those waiting in the kernel; those taken over between two counts.
DESCRIPTORS_EACH = 2  # A connection may need a second descriptor for the file that it sends or stores.
# The database, Redis, evaluators' pipes, logs, libraries, and connections accepted but not yet counted.
DESCRIPTORS_OTHERWISE = 256 + 3 * BACKLOG
TOO_LARGE = f"the request's header is too large; allowed: {MAX_HEADERS} lines and {MAX_HEADER_BYTES} bytes"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER for a close that resets.


class Phase(Enum):
    """What a connection waits for."""

    REQUEST = auto()  # a whole header
    BODY = auto()  # the rest of a body
    ANSWER = auto()  # the application
    LINGERING = auto()  # the client, which sends a body that was refused
    CLOSED = auto()


@dataclass(frozen=True)
class Mark:
    """A moment, and a count of bytes at it."""

    at: float
    count: int


class ConnectionGuard:
    """Open connections of a server; for its event loop only.

    `settings`: the limits. `most`: limit of open connections, lower than the setting where descriptors are
    short; `refused`: connections ended for a reason of their own, counted by reason.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.most = settings.max_connections
        self.refused: Counter[str] = Counter()
        self._open: set[GuardedProtocol] = set()
        self._by_address: Counter[str] = Counter()
        self._waiting: dict[GuardedProtocol, None] = {}  # In order of the time since when they wait.

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def make_room(self) -> None:
        """Raises the limit of descriptors as far as needed and allowed, and lowers `most` to what is left."""
        wanted = DESCRIPTORS_EACH * self.settings.max_connections + DESCRIPTORS_OTHERWISE
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft != resource.RLIM_INFINITY:
            self.most = min(self.most, max(16, (soft - DESCRIPTORS_OTHERWISE) // DESCRIPTORS_EACH))
        if self.most < self.settings.max_connections:
            text = "at most %d connections instead of ASSAY_MAX_CONNECTIONS=%d: the limit of open files is %d"
            logger.warning(text, self.most, self.settings.max_connections, soft)

    def admit(self, one: GuardedProtocol) -> None:
        """Counts a new connection; over a limit, closes the connection that waits longest for a request."""
        self._open.add(one)
        self._by_address[one.address] += 1
        self.wait(one)
        if self._by_address[one.address] > self.settings.max_connections_per_address:
            victim = next(other for other in self._waiting if other.address == one.address)
        elif len(self._open) > self.most:
            victim = next(iter(self._waiting))
        else:
            return
        if victim is one:
            one.refuse(Unavailable("the service has all the connections that it takes; try again"), "full")
        else:
            self.refused["evicted"] += 1
            victim.abort()

    def wait(self, one: GuardedProtocol) -> None:
        """The connection may go when room is needed: it has no request that is being answered."""
        self._waiting.pop(one, None)
        self._waiting[one] = None

    def work(self, one: GuardedProtocol) -> None:
        """The connection has a request."""
        self._waiting.pop(one, None)

    def forget(self, one: GuardedProtocol) -> None:
        """The connection is closed."""
        self._waiting.pop(one, None)
        if one in self._open:
            self._open.remove(one)
            self._by_address[one.address] -= 1
            if not self._by_address[one.address]:
                del self._by_address[one.address]

    def sweep(self, now: float) -> None:
        """Ends connections that are over their time."""
        for one in list(self._open):  # Most of a thousand wait for a shard, and nothing is sent
            if one.phase is not Phase.ANSWER or one.outgoing or one.unsent():
                one.check(now)


class LingeringTransport:
    """A connection's transport as uvicorn sees it: closing it during a body lets the answer arrive first."""

    def __init__(self, transport: asyncio.Transport, protocol: GuardedProtocol) -> None:
        self.real = transport
        self.write = transport.write
        self._protocol = protocol

    def close(self) -> None:
        """Closes at once, or after the rest of a body has been thrown away."""
        if self._protocol.phase is Phase.BODY:
            self._protocol.linger()
        else:
            self.real.close()

    def is_closing(self) -> bool:
        """Whether no further request is answered."""
        return self._protocol.phase is Phase.LINGERING or self.real.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits of size and time on headers, bodies and answers.

    A refused body gets its answer: our half of the connection ends, and what still comes is thrown away.
    """

    def __init__(self, connections: ConnectionGuard, **rest: Any) -> None:
        super().__init__(**rest)
        self.guard = connections
        self.phase = Phase.REQUEST
        self.since = self.loop.time()
        self.address = ""
        self._real: asyncio.Transport
        self._problem: AssayError | None = None
        self._served = False  # a request was answered before
        self._begun = self._spared = False  # bytes of the awaited request have come; it was late, unread
        self._in_header, self._header_bytes = False, 0  # of the present header, from its second chunk
        self._chunk = self._received = 0
        self._keep_alive, self._quiet_since = True, 0.0
        self._incoming: Mark | None = None
        self.outgoing: Mark | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Counts the connection."""
        self._real, self.unsent = transport, transport.get_write_buffer_size
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.guard.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self.phase = Phase.CLOSED
        self.guard.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses, or throws away what follows a refusal."""
        self._chunk = len(data)
        self._received += self._chunk
        if self.phase is Phase.LINGERING:
            self._discard()
            return
        if not self._begun:
            self._begun, self.since = True, self.loop.time()
        in_header = self._in_header
        super().data_received(data)
        if in_header and self._in_header:
            self._header_bytes += self._chunk
            if self._header_bytes > MAX_HEADER_BYTES:
                self.refuse(HeadersTooLarge(TOO_LARGE), "header")

    def on_message_begin(self) -> None:
        """A request begins."""
        if len(self.pipeline) >= MAX_PIPELINED:
            self._problem = MalformedRequest(f"more than {MAX_PIPELINED} requests wait for their answers")
            raise self._problem
        self._in_header, self._header_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Checks what the parser does not, and hands the request to the application."""
        if len(self.headers) > MAX_HEADERS or (
            self._chunk + self._header_bytes > MAX_HEADER_BYTES
            and len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADER_BYTES
        ):
            self._problem = HeadersTooLarge(TOO_LARGE)
            raise self._problem
        self._in_header = False
        super().on_headers_complete()
        self.phase, self._incoming = Phase.BODY, None
        self.guard.work(self)
        # An answer that begins before the body is whole ends the connection, unless little is missing.
        self._keep_alive = self.cycle.keep_alive
        if self.expect_100_continue or _announced(self.headers) > SMALL_REST:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The request is whole."""
        self.phase = Phase.ANSWER
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive
        super().on_message_complete()
        if self.cycle.response_complete:
            self._await_request()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        if self.phase is Phase.ANSWER and self.cycle.response_complete:
            self._await_request()

    def resume_writing(self) -> None:
        """The client reads."""
        self.outgoing = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What the parser cannot read, or `_problem`, as an envelope."""
        problem, self._problem = self._problem, None
        self.refuse(problem or MalformedRequest("this is not an HTTP/1.1 request"), "header")

    def _await_request(self) -> None:
        self.phase, self.since = Phase.REQUEST, self.loop.time()
        self._begun, self._served, self._spared = False, True, False
        self.guard.wait(self)

    def refuse(self, error: AssayError, reason: str) -> None:
        """Answers with the connection's own error, and ends it; cuts it where another answer is under way."""
        self.guard.refused[reason] += 1
        cycle = self.cycle
        busy = cycle is not None and not cycle.response_complete
        other = busy and (self.phase is Phase.ANSWER or self.pipeline or cycle.response_started)
        answered = self.phase is Phase.BODY and not busy
        if other or answered or self._real.is_closing():
            self.abort()
            return
        if busy:
            cycle.disconnected = True
            cycle.message_event.set()
        response = error_response(error)
        headers = [*self.server_state.default_headers, *response.raw_headers, *SAFE_HEADERS]
        lines = [STATUS_LINE[response.status_code], *(b"%s: %s\r\n" % header for header in headers)]
        self._real.write(b"".join([*lines, b"connection: close\r\n\r\n", bytes(response.body)]))
        self.linger()

    def linger(self) -> None:
        """Ends our half of the connection; what still comes is thrown away for a while."""
        self.phase, self.since = Phase.LINGERING, self.loop.time()
        self._incoming, self._quiet_since = Mark(self.since, self._received), self.since
        self._unset_keepalive_if_required()
        self.guard.wait(self)
        self.flow.resume_reading()
        self._real.write_eof()

    def abort(self) -> None:
        """Cuts the connection."""
        self.guard.work(self)
        self._real.abort()

    def _discard(self) -> None:
        assert self._incoming is not None
        if self._received - self._incoming.count > LINGER_BYTES:
            self.abort()
        self._quiet_since = self.loop.time()

    def check(self, now: float) -> None:
        """Ends the connection if it is over its time."""
        limits = self.guard.settings
        self._check_reader(now)
        if self.phase is Phase.ANSWER:
            return
        waited = now - self.since
        late = waited > limits.header_seconds and not self._real.is_closing()
        if self.phase is Phase.LINGERING:
            if waited > LINGER_SECONDS or now - self._quiet_since > LINGER_IDLE_SECONDS:
                self.abort()
        elif self.phase is Phase.BODY:
            self._check_body(now)
        elif self.phase is Phase.REQUEST and late and not self._is_spared():
            if self._begun:  # Between two requests uvicorn's timer counts, until the second begins.
                text = f"the request's header took longer than {limits.header_seconds:g} s"
                self.refuse(RequestTimeout(text), "header_timeout")
            elif not self._served or waited > limits.header_seconds + limits.keep_alive_seconds:
                self.guard.refused["header_timeout"] += 1
                self.abort()

    def _check_body(self, now: float) -> None:
        """A body must come at a minimum rate, averaged over the idle time, unless we do not read it."""
        limits = self.guard.settings
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._incoming = None
        elif self._incoming is None:
            self._incoming = Mark(now, self._received)
        elif now - self._incoming.at >= limits.body_idle_seconds:
            least = max(1, limits.min_upload_rate * limits.body_idle_seconds)
            if self._received - self._incoming.count >= least or self._is_spared():
                self._incoming = Mark(now, self._received)
                return
            text = f"less than {least:.0f} bytes of the body came in {limits.body_idle_seconds:g} s"
            text += " (ASSAY_BODY_IDLE_SECONDS, ASSAY_MIN_UPLOAD_RATE)"
            self.refuse(RequestTimeout(text), "body_timeout")

    def _is_spared(self) -> bool:
        """Whether bytes have come that a busy loop has not read yet; once for each request."""
        first, self._spared = not self._spared, True
        looking = select.poll()
        looking.register(self._real.get_extra_info("socket").fileno(), select.POLLIN)
        return first and bool(looking.poll(0))

    def _check_reader(self, now: float) -> None:
        unread = self._real.get_write_buffer_size()
        if not unread:
            self.outgoing = None
        elif self.outgoing is None or unread < self.outgoing.count:
            self.outgoing = Mark(now, unread)
        elif now - self.outgoing.at > self.guard.settings.write_idle_seconds:
            self.guard.refused["write_timeout"] += 1
            # Without this the kernel would keep what it has of the answer for minutes.
            self._real.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.abort()


def _announced(headers: list[tuple[bytes, bytes]]) -> float:
    """The length of a body, in bytes; infinite when it is sent in chunks."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else float("inf")
        if name == b"transfer-encoding":
            return float("inf")
    return 0
