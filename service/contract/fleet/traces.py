"""Traces of jobs, by OpenTelemetry: submit, claim, plan or train, evaluate and merge, in all our processes.

A job's row has the `traceparent` of its submission (W3C Trace Context, version 00), which workers continue.
Spans leave a process only where OTEL_EXPORTER_OTLP_ENDPOINT names a collector (`set_up`); without it a trace
that a caller began is still named in logs and results.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

from assay.service.contract.extras import DISTRIBUTION, install_command

log = logging.getLogger(__name__)
TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_MILLISECONDS = 5000


def set_up(name: str) -> None:
    """Sends spans of this process, a service of this name, to the collector of the environment, if any."""
    switched_off = (
        os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or os.environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none"
    )
    if switched_off or not any(map(os.environ.get, ENDPOINTS)):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("no traces are sent: %s needs %s", " or ".join(ENDPOINTS), install_command(["otel"]))
        return
    stated = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or name}
    stated["service.version"] = importlib.metadata.version(DISTRIBUTION)
    provider = TracerProvider(resource=Resource.create(stated))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def are_kept() -> bool:
    """Whether a span that begins here is of a trace, or sent: else nothing would come of it."""
    sent = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    return sent or trace.get_current_span().get_span_context().is_valid


def flush() -> None:
    """Sends the spans that wait; for processes that end without `atexit`."""
    send = getattr(trace.get_tracer_provider(), "force_flush", None)
    if send is not None:
        send(FLUSH_MILLISECONDS)


@contextmanager
def span(
    name: str, parent: str | None = None, *, kind: SpanKind = SpanKind.INTERNAL, **facts: str | int
) -> Iterator[Span]:
    """A span below the current span, else below the `traceparent`; `facts` become attributes `assay.*`."""
    above = None if parse(current()) else _context(parent)
    with _tracer().start_as_current_span(name, above, kind, _attributes(facts)) as made:
        yield made


def record(name: str, parent: str | None, begun: int, **facts: str | int) -> None:
    """A span below a `traceparent` that began at `begun`, nanoseconds of unix time, and ends now."""
    made = _tracer().start_span(name, _context(parent), attributes=_attributes(facts), start_time=begun)
    made.end(time.time_ns())


def note(**facts: str | int) -> None:
    """Adds attributes to the current span."""
    trace.get_current_span().set_attributes(_attributes(facts))


def failed(reason: str) -> None:
    """Marks the current span as failed."""
    trace.get_current_span().set_status(StatusCode.ERROR, reason)


def current() -> str | None:
    """The `traceparent` of the current span; None outside a trace."""
    here = trace.get_current_span().get_span_context()
    if not here.is_valid:
        return None
    return f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"


def trace_id(parent: str | None) -> str | None:
    """The id of a `traceparent`'s trace, 32 hexadecimal digits; None where it is malformed."""
    found = parse(parent)
    return None if found is None else f"{found.trace_id:032x}"


def fields(parent: str | None) -> dict[str, str]:
    """What lines of the log get: `trace_id`, within a trace."""
    found = trace_id(parent)
    return {} if found is None else {"trace_id": found}


def parse(parent: str | None) -> SpanContext | None:
    """A `traceparent` as a context of another process; None for any other text, which is a stranger's."""
    found = None if parent is None else TRACEPARENT.fullmatch(parent)
    if found is None:
        return None
    trace_, span_, flags = (int(part, 16) for part in found.groups())
    return SpanContext(trace_, span_, is_remote=True, trace_flags=TraceFlags(flags & TraceFlags.SAMPLED))


def _context(parent: str | None) -> Context | None:
    found = parse(parent)
    return None if found is None else trace.set_span_in_context(NonRecordingSpan(found), Context())


def _tracer() -> trace.Tracer:
    return trace.get_tracer("assay")


def _attributes(facts: dict[str, str | int]) -> dict[str, str | int]:
    return {f"assay.{name}": value for name, value in facts.items()}
