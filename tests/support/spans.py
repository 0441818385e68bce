"""Spans of the code under test, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CALLERS_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@contextmanager
def recorded() -> Iterator[InMemorySpanExporter]:
    """All spans that end in the block."""
    kept, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    # A process may set its provider once.
    with mock.patch.object(trace, "_TRACER_PROVIDER", provider):
        yield kept


def parents(spans: tuple[ReadableSpan, ...]) -> list[tuple[str, str | None]]:
    """Names of spans and of their parents, by the time of their begin; None: the parent is a stranger's."""
    names = {span.context.span_id: span.name for span in spans}
    ordered = sorted(spans, key=lambda span: span.start_time or 0)
    return [(span.name, names.get(span.parent.span_id) if span.parent else "none") for span in ordered]
