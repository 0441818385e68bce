"""Requests that are too large, too slow or too many, against a service in a process of its own.

Raw sockets: a client library would not send what is tried here.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from assay.service.connection_guard import RESET, ConnectionGuard, GuardedProtocol, Phase
from assay.service.settings import Settings
from assay.service.store.store import open_store
from tests.support.jobs import evaluate_spec
from tests.support.serving import ServedProcess

MIB = 1 << 20
MAX_CONNECTIONS, PER_ADDRESS = 120, 100
STREAMS, STREAMS_EACH = 6, 4
SETTINGS = {
    "REQUIRE_KEYS": "true",
    "MAX_CONNECTIONS": str(MAX_CONNECTIONS),
    "MAX_CONNECTIONS_PER_ADDRESS": str(PER_ADDRESS),
    "MAX_STREAMS": str(STREAMS),
    "MAX_STREAMS_PER_TENANT": str(STREAMS_EACH),
    "HEADER_SECONDS": "1.5",
    "KEEP_ALIVE_SECONDS": "2",
    "BODY_IDLE_SECONDS": "1.5",
    "MIN_UPLOAD_RATE": "1000",
    "WRITE_IDLE_SECONDS": "1.5",
}


class Served(ServedProcess):
    """The service, and a key for each of a few tenants."""

    def __init__(self, state: Path, database: Path) -> None:
        state.mkdir()
        shutil.copy(database, state / "assay.sqlite")
        with open_store(f"sqlite:///{state / 'assay.sqlite'}") as store:
            self.keys = {
                name: store.keys.create(name, ["submit"], tenant=name)[1] for name in ("alice", "bob")
            }
            job = store.jobs.add(evaluate_spec(), body_sha256="sha", tenant="alice")[0]
            file = state / "artifacts" / job.id / "large"
            file.parent.mkdir(parents=True)
            with file.open("wb") as opened:
                opened.truncate(256 * MIB)
            store.artifacts.add(job.id, "large", str(file), 256 * MIB, "0" * 64, "text/csv")
            other = store.jobs.add(evaluate_spec(), body_sha256="sha", tenant="bob")[0]
        self.events = {"alice": f"/api/v1/jobs/{job.id}/events", "bob": f"/api/v1/jobs/{other.id}/events"}
        self.artifact = f"/api/v1/jobs/{job.id}/artifacts/large"
        super().__init__(state, **SETTINGS)

    def header(self, method: str, path: str, *lines: str, key: str | None = "alice") -> bytes:
        given = [f"{method} {path} HTTP/1.1", "Host: localhost", *lines]
        if key is not None:
            given.append(f"Authorization: Bearer {self.keys[key]}")
        return "\r\n".join([*given, "", ""]).encode()

    def healthy(self) -> bool:
        return httpx.get(f"{self.url}/healthz", timeout=30, trust_env=False).status_code == 200


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served") / "state", empty_database)
    yield served
    served.stop()


@pytest.fixture(autouse=True)
def nothing_left(served: Served) -> Iterator[None]:
    """Every test leaves the service as it found it."""
    yield
    eventually(lambda: served.open_files("socket:") <= 5 and not served.open_files("artifacts"))
    assert served.healthy()


def eventually(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Status, headers and error (or text) of one answer."""
    response = b""
    while b"\r\n\r\n" not in response:
        piece = connection.recv(65536)
        if not piece:
            raise EOFError(response)
        response += piece
    head, _, body = response.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    code = int(status.split()[1])
    return code, headers, json.loads(body)["error"] if code >= 400 else body


def closed(connection: socket.socket) -> bool:
    """Whether the service closes the connection before the client gives up."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def send_all(connection: socket.socket, size: int) -> bool:
    """Sends a body without reading; False when the connection is reset meanwhile."""
    block = b" " * MIB
    try:
        for _ in range(size // MIB):
            connection.sendall(block)
    except (ConnectionResetError, BrokenPipeError):
        return False
    return True


LARGE = 40 * MIB
JSON = "Content-Type: application/json"
LENGTH = f"Content-Length: {LARGE}"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("path", "key", "extra", "status", "kind"),
    [
        ("/api/v1/jobs", "alice", [LENGTH, JSON], 413, "too_large"),
        ("/api/v1/jobs", "alice", [LENGTH, JSON, "Connection: close"], 413, "too_large"),
        ("/api/v1/jobs", None, [LENGTH, JSON, "Connection: close"], 401, "unauthorized"),
        ("/api/v1/session", None, [LENGTH, JSON], 413, "too_large"),
        ("/api/v1/checkpoints?name=x&model=no", "alice", [LENGTH, "Connection: close"], 422, "invalid_spec"),
        ("/api/v1/checkpoints?name=x", None, [LENGTH], 401, "unauthorized"),
    ],
)
def test_whoever_sends_40_mb_first_reads_why_it_was_refused(
    served: Served, path: str, key: str | None, extra: list[str], status: int, kind: str
) -> None:
    def attempt(_: int) -> tuple[int, str, str]:
        with served.connect() as connection:
            connection.sendall(served.header("POST", path, *extra, key=key))
            # Linux lets a client read what came before a reset; other systems do not.
            assert send_all(connection, LARGE)
            answer = read_answer(connection)
            return answer[0], answer[2]["type"], answer[1]["connection"]

    before = served.resident
    with ThreadPoolExecutor(4) as clients:
        assert list(clients.map(attempt, range(8))) == [(status, kind, "close")] * 8
    assert served.resident < before + 32 * MIB


def test_a_body_in_chunks_is_refused_as_well(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(served.header("POST", "/api/v1/jobs", JSON, "Transfer-Encoding: chunked"))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(40):
                connection.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")
        assert read_answer(connection)[0] == 413


def test_an_endless_body_is_cut_off(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(served.header("POST", "/api/v1/jobs", JSON, "Content-Length: 999999999999"))
        before = time.monotonic()
        sent = 0
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() - before < 30:
                sent += connection.send(b" " * MIB)
        assert 64 * MIB < sent < 128 * MIB
        assert read_answer(connection)[0] == 413


def test_a_client_that_waits_for_100_is_refused_without_it(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(served.header("POST", "/api/v1/jobs", JSON, LENGTH, "Expect: 100-continue"))
        status, headers, _ = read_answer(connection)
        assert (status, headers["connection"]) == (413, "close")
        assert closed(connection)
    with served.connect() as connection:
        connection.sendall(
            served.header("POST", "/api/v1/jobs", JSON, "Content-Length: 2", "Expect: 100-continue")
        )
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert read_answer(connection)[0] == 422


def test_the_rest_of_a_small_body_leaves_the_connection_open(served: Served) -> None:
    with served.connect() as connection:
        for _ in range(3):
            connection.sendall(served.header("POST", "/api/v1/jobs", JSON, "Content-Length: 2000", key=None))
            assert read_answer(connection)[0] == 401
            connection.sendall(b" " * 2000)
        connection.sendall(served.header("GET", "/healthz"))
        assert read_answer(connection)[0] == 200


@pytest.mark.costly
def test_half_a_header_is_408(served: Served) -> None:
    with served.connect() as connection, served.connect() as silent, served.connect() as dripping:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        stop = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                dripping.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
                while not stop.wait(0.1):
                    dripping.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        status, headers, error = read_answer(connection)
        assert (status, error["type"]) == (408, "request_timeout")
        assert headers["x-content-type-options"] == "nosniff"
        assert read_answer(dripping)[0] == 408
        stop.set()
        thread.join()
        assert silent.recv(1) == b"", "a connection without a request is closed without an answer"


@pytest.mark.costly
def test_half_a_body_is_408(served: Served) -> None:
    with served.connect() as stalled, served.connect() as dripping:
        stalled.sendall(served.header("POST", "/api/v1/jobs", JSON, "Content-Length: 1000") + b"{")
        dripping.sendall(served.header("POST", "/api/v1/jobs", JSON, "Content-Length: 1000"))
        for _ in range(100):
            dripping.sendall(b" ")
            time.sleep(0.01)
        for connection in (stalled, dripping):
            status, headers, error = read_answer(connection)
            assert (status, error["type"], headers["connection"]) == (408, "request_timeout", "close")
            assert "ASSAY_BODY_IDLE_SECONDS" in error["message"]


@pytest.mark.costly
def test_half_an_upload_is_408_and_leaves_no_file(served: Served) -> None:
    with served.connect() as connection:
        path = "/api/v1/checkpoints?name=half&model=symvit"
        connection.sendall(served.header("POST", path, "Content-Length: 4000000000") + b"x" * 100_000)
        assert read_answer(connection)[0] == 408


@pytest.mark.costly
def test_a_slow_upload_lives_on(served: Served) -> None:
    with served.connect() as connection:
        path = "/api/v1/checkpoints?name=slow&model=symvit"
        connection.sendall(served.header("POST", path, "Content-Length: 60000"))
        for _ in range(30):
            connection.sendall(b"\0" * 2000)
            time.sleep(0.12)
        assert read_answer(connection)[0] == 422, "the whole file was read, and is none"


@pytest.mark.costly
def test_a_quiet_stream_of_events_lives_on(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(served.header("GET", served.events["alice"]))
        received = b""
        while b"event: state" not in received:
            received += connection.recv(65536)
        connection.settimeout(4)  # longer than every limit
        with pytest.raises(TimeoutError):
            connection.recv(65536)


def test_idle_connections_go_when_others_come(served: Served) -> None:
    before = served.resident
    idle = [served.connect() for _ in range(3 * PER_ADDRESS)]
    try:
        eventually(lambda: served.open_files("socket:") < PER_ADDRESS + 10)
        assert served.healthy()
        assert served.resident < before + 16 * MIB
        assert idle[0].recv(1) == b"", "the oldest goes first"
    finally:
        for connection in idle:
            connection.close()


def test_all_addresses_together_are_limited(served: Served) -> None:
    before = evicted(served)
    idle = [served.connect(f"127.0.0.{2 + n % 2}") for n in range(2 * PER_ADDRESS - 20)]
    try:
        # Neither address is over its own limit.
        eventually(lambda: evicted(served) >= before + len(idle) - MAX_CONNECTIONS)
    finally:
        for connection in idle:
            connection.close()


def evicted(served: Served) -> float:
    """How many connections had to go for others."""
    headers = {"Authorization": f"Bearer {served.keys['alice']}"}
    text = httpx.get(f"{served.url}/metrics", headers=headers, timeout=30, trust_env=False).text
    found = re.search(r'assay_connections_refused_total\{reason="evicted"\} (\S+)', text)
    return float(found[1]) if found else 0.0


@pytest.mark.costly
def test_a_full_service_says_so(served: Served) -> None:
    busy: list[socket.socket] = []

    def work() -> None:
        busy.append(served.connect())
        busy[-1].sendall(served.header("POST", "/api/v1/jobs", JSON, "Content-Length: 1000000"))

    def drip() -> None:
        for connection in busy:
            with contextlib.suppress(OSError):
                connection.sendall(b" " * 2000)

    try:
        for number in range(PER_ADDRESS):
            work()
            if number % 20 == 0:
                drip()
        answers: list[tuple[int, dict[str, str], Any]] = []

        def one_more() -> int:
            drip()
            with served.connect() as connection:
                connection.sendall(served.header("GET", "/healthz"))
                answers.append(read_answer(connection))
            if answers[-1][0] == 200:
                work()  # one of them had to go before its request was read
                time.sleep(0.05)
            return answers[-1][0]

        eventually(lambda: one_more() == 503)
        _, headers, error = answers[-1]
        assert (error["type"], headers["retry-after"]) == ("unavailable", "5")
        # Half bodies do not keep the places for long.
        eventually(lambda: statuses(served) == 200)
    finally:
        for connection in busy:
            connection.close()


def statuses(served: Served) -> int:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{served.url}/healthz", timeout=30, trust_env=False).status_code
    return 0


def test_streams_of_a_tenant_and_of_all_are_limited(served: Served) -> None:
    def follow(name: str) -> tuple[int, dict[str, str], Any]:
        connection = served.connect()
        opened.append(connection)
        connection.sendall(served.header("GET", served.events[name], key=name))
        return read_answer(connection)

    opened: list[socket.socket] = []
    try:
        assert [follow("alice")[0] for _ in range(STREAMS_EACH + 20)] == [200] * STREAMS_EACH + [429] * 20
        status, headers, error = follow("alice")
        assert (status, error["type"], headers["retry-after"]) == (429, "too_many_requests", "5")
        assert "ASSAY_MAX_STREAMS_PER_TENANT" in error["message"]
        left = STREAMS - STREAMS_EACH
        assert [follow("bob")[0] for _ in range(left + 2)] == [200] * left + [429] * 2
        assert "ASSAY_MAX_STREAMS" in follow("bob")[2]["message"]
    finally:
        for connection in opened:
            connection.close()
    # A closed stream makes room.
    eventually(lambda: _stream_status(served) == 200)


def _stream_status(served: Served) -> int:
    with served.connect() as connection:
        connection.sendall(served.header("GET", served.events["bob"], key="bob"))
        return read_answer(connection)[0]


@pytest.mark.costly
def test_a_client_that_does_not_read_is_cut_off(served: Served) -> None:
    before = served.resident
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            connection = stack.enter_context(served.connect())
            connection.sendall(served.header("GET", served.artifact))
        eventually(lambda: served.open_files("large") == 10)
        eventually(lambda: served.open_files("large") == 0 and served.open_files("socket:") < 10)
        assert served.resident < before + 16 * MIB
    with served.connect() as reading:
        reading.sendall(served.header("GET", served.artifact, "Range: bytes=0-20000000", "Connection: close"))
        received = 0
        while piece := reading.recv(MIB):
            received += len(piece)
            time.sleep(0.1)
        assert received > 20_000_000, "a slow reader gets everything"


@pytest.mark.costly
def test_the_kernel_gives_up_an_answer_that_is_not_read(served: Served) -> None:
    """The whole answer fits into its buffers, so that the service has nothing left to watch."""
    host, port = urlsplit(served.url).hostname, urlsplit(served.url).port
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, port))
        own = f":{connection.getsockname()[1]:04X}"
        connection.sendall(served.header("GET", served.artifact, "Range: bytes=0-99999", "Connection: close"))

        def states() -> list[str]:
            lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            return [state for _, _, remote, state, *_ in lines if remote.endswith(own)]

        closing = "04"  # FIN_WAIT1: closed by the service, unread by the client
        eventually(lambda: states() == [closing])
        eventually(lambda: states() == [])


def test_an_answer_is_given_up_without_the_kernel_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no TCP_USER_TIMEOUT, or the client's kernel goes on answering probes."""
    aborted: list[bool] = []
    unread = [1000]
    guard = ConnectionGuard(Settings(write_idle_seconds=60))
    protocol = object.__new__(GuardedProtocol)
    protocol.guard, protocol.outgoing = guard, None
    with socket.socket() as one:
        protocol._real = SimpleNamespace(  # type: ignore[assignment]
            get_write_buffer_size=lambda: unread[0],
            get_extra_info=lambda name: one,
            abort=lambda: aborted.append(True),
        )
        for now, left in ((0.0, 1000), (59.0, 1000), (61.0, 900), (100.0, 0), (101.0, 900), (160.0, 900)):
            unread[0] = left
            protocol._check_reader(now)
            assert not aborted, now
        protocol._check_reader(162.0)
        assert aborted == [True]
        assert guard.refused["write_timeout"] == 1
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == RESET


def test_what_a_busy_service_has_not_read_is_no_delay_of_a_client() -> None:
    """A loop that was away for longer than a header may take has the request in its kernel."""
    ended: list[bool] = []
    guard = ConnectionGuard(Settings(header_seconds=10))
    protocol = object.__new__(GuardedProtocol)
    protocol.guard, protocol.phase, protocol.since, protocol.outgoing = guard, Phase.REQUEST, 0.0, None
    protocol._begun = protocol._served = protocol._spared = False
    here, there = socket.socketpair()
    with here, there:
        protocol._real = SimpleNamespace(  # type: ignore[assignment]
            get_write_buffer_size=lambda: 0,
            get_extra_info=lambda name: here,
            is_closing=lambda: False,
            abort=lambda: ended.append(True),
        )
        there.sendall(b"GET")
        protocol.check(11.0)
        assert not ended, "the loop reads it next"
        protocol.check(11.5)
        assert ended == [True], "a client that dribbles is spared once"
        protocol._spared = False
        here.recv(3)
        protocol.check(12.0)
        assert ended == [True, True], "nothing has come"


def test_headers_are_limited(served: Served) -> None:
    for lines in (
        [f"X: {'x' * 70_000}"],
        [f"X{n}: x" for n in range(120)],
        [f"X: {'x' * 2_000_000}"],
        [f"X{n}: {'x' * 1000}" for n in range(90)],
    ):
        with served.connect() as connection:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(served.header("GET", "/healthz", *lines))
            status, _, error = read_answer(connection)
            assert (status, error["type"]) == (431, "headers_too_large")
    with served.connect() as connection:
        connection.sendall(served.header("GET", f"/healthz?{'x' * 70_000}"))
        assert read_answer(connection)[0] == 431
    with served.connect() as connection:
        connection.sendall(served.header("GET", "/readyz", *[f"X{n}: {'x' * 500}" for n in range(90)]))
        assert read_answer(connection)[0] == 200


def test_requests_sent_ahead_are_limited(served: Served) -> None:
    before = served.resident
    with served.connect() as connection:
        connection.sendall(served.header("GET", "/healthz") * 10)
        text = b""
        while text.count(b'{"status":"ok"}') < 10:
            text += connection.recv(65536)
    with served.connect() as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(served.header("GET", "/healthz") * 20_000)
        assert closed(connection)
    with served.connect() as connection:
        connection.sendall(served.header("GET", served.events["alice"]) + b"GET / HTTP/1.1\r\nX: ")
        send_all(connection, 20 * MIB)
        assert closed(connection)
    assert served.resident < before + 16 * MIB


SMUGGLED = {
    "two lengths": ["Content-Length: 2", "Content-Length: 3"],
    "the same length twice": ["Content-Length: 2", "Content-Length: 2"],
    "a list of lengths": ["Content-Length: 2, 2"],
    "a length and chunks": ["Content-Length: 2", "Transfer-Encoding: chunked"],
    "chunks and a length": ["Transfer-Encoding: chunked", "Content-Length: 2"],
    "chunks not last": ["Transfer-Encoding: chunked, identity"],
    "chunks twice": ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    "a signed length": ["Content-Length: +2"],
    "a negative length": ["Content-Length: -2"],
    "a length in hexadecimal": ["Content-Length: 0x2"],
    "a huge length": [f"Content-Length: {'9' * 30}"],
    "a space before the colon": ["Content-Length : 2"],
    "a folded line": ["X: a\r\n b"],
    "a line feed alone": ["X: a\nContent-Length: 2"],
    "a zero byte": ["X: a\0b"],
    "two hosts": ["Host: localhost", "Content-Length: 2"],
    "two different hosts": ["Host: evil.example", "Content-Length: 2"],
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_ambiguous_requests_are_400(served: Served, name: str) -> None:
    with served.connect() as connection:
        connection.sendall(served.header("POST", "/api/v1/jobs", JSON, *SMUGGLED[name]) + b"{}")
        status, headers, error = read_answer(connection)
        assert (status, error["type"]) == (400, "malformed_request")
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.costly
@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_other_languages_are_400(served: Served, text: bytes) -> None:
    with served.connect() as connection:
        connection.sendall(text)
        status, _, error = read_answer(connection)
        assert (status, error["type"]) == (400, "malformed_request")
