"""Traces: strangers' contexts are parsed strictly, spans have the right parents, a collector gets them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.trace import StatusCode

from assay.service.contract.fleet import traces
from tests.support.spans import CALLER, CALLERS_TRACE, parents, recorded

MALFORMED = [
    "",
    "00",
    CALLER.upper(),
    CALLER + "-00",
    CALLER + "\n",
    CALLER.replace("00-4", "01-4"),
    f"00-{'0' * 32}-00f067aa0ba902b7-01",
    f"00-{CALLERS_TRACE}-{'0' * 16}-01",
    f"00-{CALLERS_TRACE}-00f067aa0ba902b7",
    "x" * 100_000,
]


@pytest.mark.parametrize("text", [None, *MALFORMED])
def test_a_malformed_context_is_none(text: str | None) -> None:
    assert traces.parse(text) is None
    assert traces.fields(text) == {}
    with traces.span("alone", text):
        assert traces.current() is None


def test_without_an_sdk_a_callers_trace_goes_on_under_its_own_name() -> None:
    with traces.span("submit", CALLER):
        assert traces.current() == CALLER
    assert traces.fields(CALLER) == {"trace_id": CALLERS_TRACE}


def test_spans_nest_below_the_current_span_before_a_stored_one() -> None:
    other = CALLER.replace("4bf9", "5bf9")
    with recorded() as kept:
        with traces.span("outer", CALLER, shard="s"), traces.span("inner", other):
            traces.note(fence=3)
        traces.record("claim", CALLER, 1_000, shard="s")
    spans = kept.get_finished_spans()
    assert parents(spans) == [("claim", None), ("outer", None), ("inner", "outer")]
    assert {f"{span.context.trace_id:032x}" for span in spans} == {CALLERS_TRACE}
    facts = {span.name: dict(span.attributes or {}) for span in spans}
    assert facts == {
        "claim": {"assay.shard": "s"},
        "outer": {"assay.shard": "s"},
        "inner": {"assay.fence": 3},
    }
    (claim,) = [span for span in spans if span.name == "claim"]
    assert claim.start_time == 1_000


def test_a_failure_marks_the_span() -> None:
    with recorded() as kept, traces.span("evaluate"):
        traces.failed("out_of_memory")
    (span,) = kept.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "out_of_memory")


PROGRAM = """
from assay.service.contract.fleet import traces
traces.set_up("assay-worker")
with traces.span("evaluate", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
    pass
traces.flush()
"""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Address of a server that keeps what is posted to it."""
    posted: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", posted
    server.shutdown()
    server.server_close()


def run(**variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=kept | variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_collector_gets_the_spans_once(collector: tuple[str, list[tuple[str, bytes]]]) -> None:
    address, posted = collector
    run(OTEL_EXPORTER_OTLP_ENDPOINT=address)
    ((path, body),) = posted
    assert path == "/v1/traces"
    assert b"assay-worker" in body
    assert b"evaluate" in body
    assert bytes.fromhex(CALLERS_TRACE) in body


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_a_collector_gets_nothing_where_traces_are_off(
    collector: tuple[str, list[tuple[str, bytes]]], off: dict[str, str]
) -> None:
    address, posted = collector
    run(OTEL_EXPORTER_OTLP_ENDPOINT=address, **off)
    assert posted == []


def test_a_missing_sdk_is_said_with_its_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    traces.set_up("assay")
    assert "assay-robustness[otel]" in caplog.text
