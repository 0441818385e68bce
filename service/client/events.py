"""Reads a job's server-sent events, resumes broken streams."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from pydantic import ValidationError

from assay.service.contract.errors import TooManyRequests, Unavailable
from assay.service.contract.events import Event

PAUSE_SECONDS = 0.5
RECONNECT_SECONDS = 60.0

# Opens the stream after an event: its lines, or None at its end.
Connect = Callable[[int], AbstractContextManager[Iterator[str] | None]]


def followed(connect: Connect, after: int, *, follow: bool = True) -> Iterator[Event]:
    """The events after a given event, over as many connections as needed."""
    last, ended = after, False
    seen = time.monotonic()
    while True:
        try:
            with connect(last) as lines:
                if lines is None:
                    return
                seen = time.monotonic()
                for event in parsed(lines):
                    seen = time.monotonic()
                    last, ended = event.id, event.type == "end"
                    yield event
                    seen = time.monotonic()  # The caller's time is no absence of the service
            if ended or not follow:
                return
        except (Unavailable, TooManyRequests):
            if time.monotonic() - seen > RECONNECT_SECONDS:
                raise
        time.sleep(PAUSE_SECONDS)


def parsed(lines: Iterable[str]) -> Iterator[Event]:
    """The events in a stream's lines; comments and unknown kinds are skipped."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        event = _event(fields)
        fields = {}
        if event is not None:
            yield event


def _event(fields: dict[str, str]) -> Event | None:
    try:
        data = json.loads(fields["data"])
        return Event.model_validate(
            {"id": int(fields["id"]), "type": fields["event"], "at": data.pop("at"), "data": data}
        )
    except (KeyError, ValueError, AttributeError, ValidationError):
        return None
