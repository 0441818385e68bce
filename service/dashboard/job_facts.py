"""What the page of a job says beside its results: sources, errors and remedies, and the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.service.api.views import identity_of, iso, waits_in_vain
from assay.service.contract.errors import NotFound
from assay.service.contract.events import EventType
from assay.service.contract.results import JobError, Results
from assay.service.contract.stored_specs import evaluations_in
from assay.service.contract.verbs import VERBS, Situation, Verb
from assay.service.store.ids import is_id
from assay.service.store.rows import EventRow, JobRow
from assay.service.store.tenants import TenantStore
from assay.service.store.transactions.release import DIFFERENT
from assay.service.submission.dependencies import dependencies_of

MAX_LINES = 50
MAX_SOURCES = 20
LOGGED: tuple[EventType, ...] = ("log", "state", "end")
MEASURED: tuple[EventType, ...] = ("metric",)
# What to do about an error, by its type.
REMEDIES: dict[str, str] = json.loads(Path(__file__).with_name("remedies.json").read_text(encoding="utf-8"))
OTHERWISE = "Retry the job: finished parts are kept. If it fails again, the log below says what happened."


@dataclass(frozen=True)
class JobSource:
    """Another job that a job takes weights from; without name and state where the caller sees no such job."""

    id: str
    name: str | None
    state: str | None


def remedy_of(error: JobError | None) -> str | None:
    """What to do about an error."""
    return None if error is None else REMEDIES.get(error.type, OTHERWISE)


def sources_of(store: TenantStore, job: JobRow) -> list[JobSource]:
    """The jobs that this job takes weights from, the weights of its own model first."""
    ids = dict.fromkeys(one.job for one in dependencies_of(job.spec) if is_id(one.job))
    return [_source(store, job_id) for job_id in list(ids)[:MAX_SOURCES]]


def _source(store: TenantStore, job_id: str) -> JobSource:
    try:
        row = store.jobs.get(job_id)
    except NotFound:
        return JobSource(job_id, None, None)
    return JobSource(job_id, row.name, row.state.value)


def missing_evaluations(job: JobRow, results: Results | None) -> tuple[int, int]:
    """Number of evaluations that have no result, and of all."""
    expected = len(evaluations_in(job.spec))
    found = 0 if results is None else len(results.evaluations)
    return max(0, expected - found), expected


def newest_result(store: TenantStore, job_id: str) -> int:
    """Number of the event of a job's newest result, which a page compares with its own; 0 without results."""
    found = store.events.latest(job_id, MEASURED, 1)
    return found[0].seq if found else 0


def log_lines(store: TenantStore, job: JobRow) -> list[tuple[str, str]]:
    """The newest lines of the log, each with its time: messages, changes of state, and the end."""
    newest = store.events.latest(job.id, LOGGED, MAX_LINES)
    found = [(iso(event.at), _line(event)) for event in reversed(newest)]
    # The state before an end says the same as the end.
    earlier = [line for _, line in found[1:]] + [""]
    return [one for one, line in zip(found, earlier, strict=False) if one[1] != f"ended: {line}"]


def _line(event: EventRow) -> str:
    data: Mapping[str, Any] = event.data
    if event.type == "log":
        return str(data.get("message", ""))
    error = data.get("error") or {}
    parts = (data.get("state"), data.get("message"), error.get("message"))
    words = ": ".join(dict.fromkeys(str(part) for part in parts if part))
    return words if event.type == "state" else f"ended: {words}"


def offered_verbs(store: TenantStore, job: JobRow) -> list[Verb]:
    """The verbs that have a button."""
    situation = Situation(
        state=job.state,
        planned=identity_of(job) != "",
        doubted=job.error is not None and job.error["type"] == DIFFERENT,
        stranded=lambda: waits_in_vain(store, job),
    )
    return [verb for verb in VERBS if verb.button.offered(situation)]
