"""The events of a job, as `GET /api/v1/jobs/{id}/events` streams them."""

from __future__ import annotations

from typing import Any, Literal

from assay.service.contract.results import Answer

EventType = Literal["state", "progress", "log", "metric", "end"]


class Event(Answer):
    """Something that happened to a job, and its `data`.

    - `state`: `{"state", "attempt", "message", "error"}`
    - `progress`: `{"done", "total", "unit", "eta_seconds"}`, at most twice a second
    - `log`: `{"message"}`, one line on what the job is doing
    - `metric`: `{"evaluation", "name", "params", "metrics"}`, an evaluation has its result
    - `end`: `{"state", "attempt", "error"}`, nothing more will happen unless the job is retried

    Attributes:
        id: its number in the job's sequence, from 1; what `Last-Event-ID` takes.
        at: when, as ISO 8601 in UTC.
    """

    id: int
    type: EventType
    at: str
    data: dict[str, Any]
