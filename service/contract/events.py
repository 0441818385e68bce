"""The events of a job, as `GET /api/v1/jobs/{id}/events` streams them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from assay.service.contract.records import ErrorRecord, ResultJson, TrainingSpeed
from assay.service.contract.results import Answer
from assay.service.contract.stored_specs import Params

EventType = Literal["state", "progress", "log", "metric", "end"]


class StateData(TypedDict):
    """Data of `state`: the state that the job has got."""

    state: str
    attempt: int
    message: str
    error: ErrorRecord | None


class EndData(TypedDict):
    """Data of `end`: the state in which the job has ended."""

    state: str
    attempt: int
    error: ErrorRecord | None


class ProgressData(TrainingSpeed):
    """Examples or steps done, seconds left and share of the planned cost; None where they are unknown."""

    done: int
    total: int | None
    unit: Literal["examples", "steps"]
    eta_seconds: float | None
    share: NotRequired[float | None]


class LogData(TypedDict):
    """Data of `log`: a line."""

    message: str


class MetricData(TypedDict):
    """Data of `metric`: parts of an `EvaluationResult`, and its number in the spec."""

    evaluation: int
    name: NotRequired[str]
    params: NotRequired[Params]
    metrics: NotRequired[ResultJson]


EventData = StateData | EndData | ProgressData | LogData | MetricData


class Event(Answer):
    """Something that happened to a job, and its `data`.

    - `state`: `{"state", "attempt", "message", "error"}`
    - `progress`: the fields of a job's `progress`, at most twice a second
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
