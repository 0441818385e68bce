"""What the page of a job says beside its results: sources, errors and remedies, and the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
REMEDIES: Mapping[str, str] = {
    "out_of_memory": "Clone the job with a smaller batch size, or run it on a device with more memory.",
    "disk_full": "Free some space on the worker, then retry: a training goes on from its last checkpoint.",
    "data_missing": "Put the data set into the folder that the message names on every worker, then retry.",
    "bad_weights": "Check that the weights belong to this model and its parameters, then clone and edit.",
    "training_diverged": "Clone the job with a lower learning rate, or with float32.",
    "device_fault": "Have an operator look at the workers (`assay workers list`, `assay doctor`), and retry.",
    "device_assertion": "Check labels and indices of the model and the data, then clone and edit.",
    "nondeterministic_operator": "Clone the job with another model or attack, or run it on the CPU.",
    "component_missing": "Install the package with the component on every worker, then retry.",
    "package_missing": "Install the extra that the message names on every worker, then retry.",
    "invalid_value": "Correct in a clone the value that the message names, or mend the file and retry.",
    "dependency_failed": "Mend and retry the job that this one needs, then retry this one.",
    "over_limit": "Clone the job with a lower limit, fewer steps or fewer epochs; an operator may raise the"
    " limit.",
    "mixed_identities": "Plan the job again: all of it is then measured by the same code.",
    DIFFERENT: "Use none of the numbers. Have an operator find what is wrong, a worker or the job's code"
    " (docs/operations.md, Shards that are computed again), then plan the job again: a retry is refused.",
    "timed_out": "Retry to go on from the finished parts, or clone the job with a longer timeout.",
}
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
    return [(iso(event.at), _line(event)) for event in reversed(newest)]


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
