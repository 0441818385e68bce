"""Requests that are too large, too slow, too many or ambiguous, at the service's default limits."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.hostile.attempt import Attempt, Target

MIB = 1 << 20
LARGE = 40 * MIB
JSON = "Content-Type: application/json"
JOBS = "/api/v1/jobs"
# Of the service, by default.
PER_ADDRESS, STREAMS_EACH, HEADER_SECONDS = 500, 32, 10
BUNDLE = "/docs/swagger-ui-bundle.js"
LONG_TRAINING = """{"kind": "train", "name": "long", "data": {"name": "digits"}, "model": {"name": "symvit"},
    "recipe": {"name": "small_vit", "params": {"epochs": 300}}}"""


def header(method: str, path: str, *lines: str, key: str = "") -> bytes:
    """The header of a request, without a body."""
    authorization = [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: localhost", *authorization, *lines, "", ""]
    ).encode()


def connect(target: Target, receive_buffer: int = 0) -> socket.socket:
    """A connection whose operations fail after a while."""
    parts = urlsplit(target.url)
    assert parts.hostname is not None
    connection = socket.socket()
    connection.settimeout(30)
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect((parts.hostname, parts.port))
    return connection


@contextmanager
def connections(target: Target, count: int, receive_buffer: int = 0) -> Iterator[list[socket.socket]]:
    """So many connections at a time."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(target, receive_buffer)) for _ in range(count)]


def status_of(connection: socket.socket) -> int:
    """Status of the next answer; 0 where the connection ended without one."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while b"\r\n" not in received:
            piece = connection.recv(4096)
            if not piece:
                return 0
            received += piece
    return int(received.split()[1]) if received else 0


def all_are(statuses: Iterable[int], wanted: int) -> None:
    """Raises AssertionError unless every status is the wanted one."""
    counts = Counter(statuses)
    assert set(counts) == {wanted}, f"statuses {dict(counts)}, not {wanted}"


def milliseconds_of_others(target: Target) -> float:
    """The time in which another tenant's request is answered."""
    begun = time.monotonic()
    answer = httpx.get(f"{target.url}{JOBS}", headers={"Authorization": f"Bearer {target.bob}"}, timeout=10)
    assert answer.status_code == 200, answer.text
    return 1000 * (time.monotonic() - begun)


def sockets_of(target: Target) -> int:
    """Sockets that the service has open."""
    found = 0
    for link in Path(f"/proc/{target.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(link.readlink()).startswith("socket:")
    return found


def resident(target: Target) -> int:
    """Memory of the service in bytes."""
    status = Path(f"/proc/{target.pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def large_bodies(target: Target, path: str, key: str, wanted: int) -> str:
    """Fifty clients send 40 MB each before they read."""

    def attempt(_: int) -> int:
        with connect(target) as connection:
            length = f"Content-Length: {LARGE}"
            connection.sendall(header("POST", path, JSON, length, "Connection: close", key=key))
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                for _ in range(LARGE // MIB):
                    connection.sendall(b" " * MIB)
            return status_of(connection)

    before = resident(target)
    with ThreadPoolExecutor(4) as clients:
        all_are(clients.map(attempt, range(50)), wanted)
    assert resident(target) < before + 64 * MIB
    return f"50 of 50 clients read {wanted}"


def half_a_header(target: Target) -> str:
    """Bytes of a header that never ends."""
    with connect(target) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        begun = time.monotonic()
        all_are([status_of(connection)], 408)
        return f"408 after {time.monotonic() - begun:.0f} s"


def half_bodies(target: Target) -> str:
    """As many connections as an address may have, each with half of a large body."""
    before = resident(target)
    with connections(target, PER_ADDRESS - 10) as opened:
        answered: Counter[int] = Counter()
        for connection in opened:
            text = header("POST", JOBS, JSON, f"Content-Length: {MIB}", key=target.alice)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(text + b" " * (MIB // 2))
        waited = milliseconds_of_others(target)
        grown = resident(target) - before
        for connection in opened:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                answered[int(connection.recv(100).split()[1])] += 1
    assert set(answered) == {429}, answered
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"
    refused = f"{answered[429]} of {len(opened)} got 429, +{grown / MIB:.0f} MiB"
    return f"{refused}; another tenant waited {waited:.0f} ms"


def idle_connections(target: Target) -> str:
    """Three thousand connections without a request."""
    before, memory = sockets_of(target), resident(target)
    with connections(target, 3000):
        waited = milliseconds_of_others(target)
        kept, grown = sockets_of(target) - before, resident(target) - memory
    assert kept <= PER_ADDRESS + 20, kept
    assert grown < 64 * MIB, f"{grown / MIB:.0f} MiB"
    return f"{kept} kept, +{grown / MIB:.0f} MiB; another tenant waited {waited:.0f} ms"


def streams(target: Target) -> str:
    """Six hundred event streams of a job that runs for long."""
    spec = json.loads(LONG_TRAINING)
    authorization = {"Authorization": f"Bearer {target.alice}"}
    with httpx.Client(base_url=target.url, headers=authorization, timeout=30) as client:
        answer = client.post(JOBS, json=spec)
        assert answer.status_code == 201, answer.text
        job = f"{JOBS}/{answer.json()['id']}"
        try:
            with connections(target, STREAMS_EACH + 10) as opened:
                counts: Counter[int] = Counter()
                for number in range(600):
                    # A refused one tries again on its connection, as a browser would.
                    connection = opened[min(number, len(opened) - 1)]
                    connection.sendall(header("GET", f"{job}/events", key=target.alice))
                    counts[status_and_rest(connection)] += 1
                waited = milliseconds_of_others(target)
        finally:
            client.post(f"{job}/cancel")
    assert counts == {200: STREAMS_EACH, 429: 600 - STREAMS_EACH}, counts
    return f"{counts[200]} opened, {counts[429]} got 429; another tenant waited {waited:.0f} ms"


def status_and_rest(connection: socket.socket) -> int:
    """Status of an answer, which is read whole if its length is known."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(4096)
    head, _, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            while len(body) < int(line.partition(b":")[2]):
                body += connection.recv(4096)
    if not head.startswith(b"HTTP/1.1 200"):
        assert json.loads(body)["error"]["type"] == "too_many_requests", body
    return int(head.split()[1])


def slow_readers(target: Target) -> str:
    """Clients that ask for a large file and read none of it."""
    before = resident(target)
    with connections(target, 300, receive_buffer=4096) as opened:
        for connection in opened:
            connection.sendall(header("GET", BUNDLE, key=target.alice))
        time.sleep(2)
        waited, grown = milliseconds_of_others(target), resident(target) - before
    assert grown < 100 * MIB, f"{grown / MIB:.0f} MiB"
    return f"300 wait with +{grown / MIB:.0f} MiB; another tenant waited {waited:.0f} ms"


def slow_header(target: Target) -> str:
    """A header that comes a byte at a time, and would take a minute."""
    text, begun = header("GET", "/healthz", "X-Slow: " + "x" * 60), time.monotonic()
    with connect(target) as connection:
        for place in range(len(text)):
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(text[place : place + 1])
            connection.settimeout(1.0)
            try:
                status = status_of(connection)
            except TimeoutError:
                continue
            assert status == 408, status
            return f"408 after {time.monotonic() - begun:.0f} s"
    raise AssertionError("the whole header was taken")


def byte_by_byte(target: Target) -> str:
    """A hundred downloads and thirty event streams, of which each second a byte is read."""
    spec = json.loads(LONG_TRAINING)
    authorization = {"Authorization": f"Bearer {target.alice}"}
    before = resident(target)
    with httpx.Client(base_url=target.url, headers=authorization, timeout=30) as client:
        job = f"{JOBS}/{client.post(JOBS, json=spec).raise_for_status().json()['id']}"
        try:
            with connections(target, 130, receive_buffer=4096) as opened:
                for number, connection in enumerate(opened):
                    path = BUNDLE if number < 100 else f"{job}/events"
                    connection.sendall(header("GET", path, key=target.alice))
                waited = []
                for _ in range(15):
                    for connection in opened:
                        assert connection.recv(1), "cut off"
                    waited.append(milliseconds_of_others(target))
                    time.sleep(1)
                kept, grown = sockets_of(target), resident(target) - before
        finally:
            client.post(f"{job}/cancel")
    assert kept <= PER_ADDRESS + 20, kept
    assert grown < 100 * MIB, f"{grown / MIB:.0f} MiB"
    return f"130 wait with +{grown / MIB:.0f} MiB; another tenant waited at most {max(waited):.0f} ms"


def ambiguous(target: Target, *lines: str) -> str:
    """A request that two servers could read in two ways."""
    with connect(target) as connection:
        connection.sendall(header("POST", JOBS, JSON, *lines, key=target.alice) + b"0\r\n\r\n")
        all_are([status_of(connection)], 400)
    return "400"


def endless_header(target: Target) -> str:
    """A header of 100 MB."""
    before = resident(target)
    with connect(target) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(100):
                connection.sendall(b"x" * MIB)
        all_are([status_of(connection)], 431)
    assert resident(target) < before + 16 * MIB
    return "431"


def sent_ahead(target: Target) -> str:
    """Requests by the thousand without waiting for answers."""
    before = resident(target)
    with connect(target) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(header("GET", "/healthz") * 50_000)
        answered = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                answered += piece.count(b"HTTP/1.1 200")
    assert answered < 1000, answered
    assert resident(target) < before + 16 * MIB
    return f"cut off after {answered} answers"


ATTEMPTS: tuple[Attempt, ...] = (
    Attempt("40 MB for a job", lambda target: large_bodies(target, JOBS, target.alice, 413)),
    Attempt("40 MB without a key", lambda target: large_bodies(target, JOBS, "", 401)),
    Attempt("40 MB to log in", lambda target: large_bodies(target, "/api/v1/session", "", 413)),
    Attempt(
        "40 MB of weights without a key",
        lambda target: large_bodies(target, "/api/v1/checkpoints?name=x", "", 401),
    ),
    Attempt("half a header", half_a_header),
    Attempt("490 half bodies", half_bodies),
    Attempt("3,000 idle connections", idle_connections),
    Attempt("600 event streams with one key", streams),
    Attempt("300 clients that do not read", slow_readers),
    Attempt("a header at a byte a second", slow_header),
    Attempt("130 clients that read a byte a second", byte_by_byte),
    Attempt("a header of 100 MB", endless_header),
    Attempt("50,000 requests at once", sent_ahead),
    Attempt("two Host headers", lambda target: ambiguous(target, "Host: localhost", "Content-Length: 5")),
    Attempt("two lengths", lambda target: ambiguous(target, "Content-Length: 5", "Content-Length: 6")),
    Attempt(
        "a length and chunks",
        lambda target: ambiguous(target, "Content-Length: 5", "Transfer-Encoding: chunked"),
    ),
)
