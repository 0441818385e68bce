"""Rows of the store as the JSON that users see."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from assay.service.api.outcome_tables import read_result
from assay.service.catalog.catalog import load
from assay.service.contract.results import (
    Artifact,
    EvaluationResult,
    Job,
    JobError,
    Links,
    Progress,
    Provenance,
    Results,
    Warning,
)
from assay.service.contract.row_protocols import RadiusUnitOf, protocol_unit
from assay.service.contract.states import TERMINAL, JobState
from assay.service.contract.stored_specs import evaluations_in
from assay.service.contract.threat import ThreatOf
from assay.service.contract.times import iso as iso
from assay.service.contract.times import iso_or_none
from assay.service.contract.warning_codes import WarningCode
from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.metrics.compare.sanity_checks import cross_checks
from assay.service.store.fleet.identities import Refused
from assay.service.store.fleet.lanes import Blocked
from assay.service.store.live import Live
from assay.service.store.rows import ArtifactRow, JobRow
from assay.service.store.tenants import TenantStore
from assay.service.store.transactions.pace import cost_share, eta_seconds, training_speed
from assay.service.store.transactions.progress import with_reports
from assay.service.submission.requirements import first_requirements
from assay.service.submission.suites import left_out_warnings

Shown = TypeVar("Shown", bound=BaseModel)

JOBS_PATH = "/api/v1/jobs"
# Workers may hold shards of a job in these states.
AT_WORK = frozenset({JobState.STARTING, JobState.RUNNING, JobState.CANCELING})
# States in which a job without workers goes on waiting for a worker.
UNHEARD = frozenset({JobState.QUEUED, JobState.STARTING, JobState.RUNNING})
ONCE: frozenset[WarningCode] = frozenset({"top5_upper_bound"})  # Every attack has it alike: shown once.
NO_WORKER = "no worker is listening for this job"
UNKNOWN = "online, but not of the service's release, and waiting for an administrator to allow their identity"
PROGRAM, FAULTS = "program", 3  # A fault by which a program was exchanged, and how many are shown.


def view(shown: type[Shown], row: object, **given: Any) -> Shown:
    """A row as users see it: values by the names of fields, times (`..._at`) as ISO 8601; `given` first."""
    values = {name: getattr(row, name) for name in shown.model_fields.keys() - given.keys()}
    times = {name: iso_or_none(time) for name, time in values.items() if name.endswith("_at")}
    return shown(**values | times | given)


class JobViews:
    """Makes views of several jobs, with few queries for any number of them."""

    def __init__(self, store: TenantStore, rows: Sequence[JobRow]) -> None:
        self._store = store
        self._rows = rows
        self._positions = store.jobs.queue_positions(rows)
        self._online: dict[tuple[str, int, str], int] = {}
        self._asked: dict[tuple[str, int], str] = {}

    def all(self) -> list[Job]:
        """The jobs as users see them, in the given order."""
        return [self._view(row) for row in self._rows]

    def _view(self, row: JobRow) -> Job:
        assert row.kind != "check", "checks are not shown"
        identity = "" if row.state in TERMINAL else identity_of(row)
        online = self._workers_online(device_of(row), devices_of(row), identity)
        blocked = self._blocked(row, identity) if online else None
        unheard = row.state in UNHEARD and (online == 0 or (blocked is not None and blocked.entirely))
        message = self._no_worker_online(row) if online == 0 and unheard else _message(blocked) or row.message
        return view(
            Job,
            row,
            deadline=iso_or_none(row.deadline),
            progress=Progress(
                done=row.progress_done,
                total=row.progress_total,
                unit=row.progress_unit,
                eta_seconds=None if unheard else self._eta(row),
                share=cost_share(row),
                **training_speed(row),
            ),
            queue_position=self._positions.get(row.id),
            workers_online=online,
            message=message or self._delayed(row),
            error=job_error(row),
            study=row.study_id,
            summary=row.summary,
            links=links(row.id),
        )

    def _eta(self, row: JobRow) -> float | None:
        return eta_seconds(row, self._store.workers.clock()) if row.state in AT_WORK else None

    def _delayed(self, row: JobRow) -> str:
        """Why a queued job is not claimed; empty without a reason."""
        if row.state is not JobState.QUEUED:
            return ""
        reasons = self._store.quota.delays(row.tenant)
        if reasons:
            return f"waits: the tenant has reached its limit of {' and '.join(reasons)}"
        return self._asked_for(device_of(row), devices_of(row))

    def _blocked(self, row: JobRow, identity: str) -> Blocked | None:
        if row.plan is None:
            asked = row.state is JobState.QUEUED and bool(first_requirements(load(), row.spec))
        else:
            asked = row.state is JobState.RUNNING and any(row.plan.get("requirements", []))
        if not asked:
            return None
        found = self._store.workers.blocked(row.id, device_of(row), devices_of(row), identity)
        return found if found.reasons or (found.data and row.state is JobState.QUEUED) else None

    def _workers_online(self, device: str, devices: int, identity: str = "") -> int:
        key = (device, devices, identity)
        if key not in self._online:
            self._online[key] = self._store.workers.online_lately(*key)
        return self._online[key]

    def _asked_for(self, device: str, devices: int) -> str:
        """What the job waits for where a fleet was asked for a worker; else empty."""
        key = (device, devices)
        if key not in self._asked:
            self._asked[key] = self._store.workers.fleets.waiting(device, devices)
        return self._asked[key]

    @cached_property
    def _refused(self) -> dict[str, Refused]:
        return self._store.workers.refused()

    @cached_property
    def _unfit(self) -> list[str]:
        return self._store.workers.unfit()

    def _no_worker_online(self, row: JobRow) -> str:
        wanted, identity = devices_of(row), identity_of(row)
        if identity and identity in self._refused:
            return _refused(identity, self._refused[identity])
        if asked := self._asked_for(device_of(row), wanted):
            return asked
        others = self._workers_online(device_of(row), wanted) if identity else 0
        if others:
            return (
                f"waits for workers of identity {identity}, which planned it; the {others} online have other"
                " code, packages or another catalog: start such workers, or plan it again (assay replan)"
            )
        if wanted > 1:
            return f"{NO_WORKER}: it asks for one with {wanted} devices"
        device = device_of(row)
        faults = [said for said in self._unfit if said.partition(":")[0] in (PROGRAM, device)]
        if faults:
            return f"{NO_WORKER}; online, and not fit: {'; '.join(faults[:FAULTS])}"
        unknown = [
            f"{digest or 'none'} ({found.release})"
            for digest, found in self._refused.items()
            if found.workers
        ]
        if unknown:
            return f"{NO_WORKER}; {UNKNOWN}: {', '.join(unknown[:FAULTS])}"
        return f"{NO_WORKER}: it asks for cuda, a GPU" if device == "cuda" else NO_WORKER


def _refused(identity: str, found: Refused) -> str:
    why = "and an administrator has withdrawn this identity"
    if not found.withdrawn:
        why = f"and their code ({found.release}) is not the service's own release's"
    return (
        f"waits for workers of identity {identity}, which planned it, {why}: plan it again (assay replan), or"
        f" have an administrator allow the identity (assay workers allow {identity})"
    )


def waits_in_vain(store: TenantStore, row: JobRow) -> bool:
    """Whether no worker online measures a planned job: planned again, it could be."""
    identity, device, devices = identity_of(row), device_of(row), devices_of(row)
    if store.workers.online_lately(device, devices, identity) == 0:
        return True
    return row.state is JobState.RUNNING and store.workers.blocked(row.id, device, devices, identity).entirely


def _message(blocked: Blocked | None) -> str:
    if blocked is None:
        return ""
    part = "waits" if blocked.entirely or not blocked.reasons else "a part waits"
    wanted = f"another worker than the {blocked.workers} online"
    if blocked.data:
        wanted = f"a worker with the data set {' and '.join(blocked.data)}"
    return f"{part} for {wanted}{': ' if blocked.reasons else ''}{'; '.join(blocked.reasons)}"


def job_view(store: TenantStore, row: JobRow) -> Job:
    """The job as a user sees it."""
    return JobViews(store, [row]).all()[0]


def up_to_date(store: TenantStore, live: Live, job: JobRow) -> JobRow:
    """The job with its workers' reports since their last write to the database."""
    if not live.used or job.state not in AT_WORK:
        return job
    snapshot = store.jobs.progress_snapshot(job.id)
    return job if snapshot is None else with_reports(job, snapshot, live.done(snapshot.running))


def device_of(row: JobRow) -> str:
    """The device class that the job is pinned to: by its plan, else by its spec."""
    return row.spec["execution"]["device"] if row.plan is None else row.plan["device"]


def identity_of(row: JobRow) -> str:
    """The identity that its workers must have; empty for any, before it is planned."""
    planned = None if row.plan is None else row.plan.get("identity")
    return "" if planned is None else planned["digest"]


def devices_of(row: JobRow) -> int:
    """Number of devices that a worker needs for the job; older specs have no such field."""
    return row.spec["execution"].get("devices", 1)


def job_error(row: JobRow | CheckpointRow) -> JobError | None:
    """Why the job failed, or the checkpoint was rejected, or None."""
    return None if row.error is None else JobError(type=row.error["type"], message=row.error["message"])


def links(job_id: str) -> Links:
    """Absolute paths of the job's other pages."""
    path = f"{JOBS_PATH}/{job_id}"
    return Links(self=path, results=f"{path}/results", events=f"{path}/events", artifacts=f"{path}/artifacts")


def results_view(
    row: JobRow,
    results: dict[int, dict[str, object]],
    threat_of: ThreatOf,
    unit_of: RadiusUnitOf = protocol_unit,
) -> Results:
    """The results so far, in the order of the spec; threats and units of radii are for checks across them."""
    evaluations, repeated = _once([read_result(results[index]) for index in sorted(results)])
    expected = len(evaluations_in(row.spec))
    complete = row.state == JobState.SUCCEEDED and len(evaluations) >= expected
    return Results(
        job=row.id,
        complete=complete,
        evaluations=evaluations,
        warnings=[*left_out_warnings(row.spec), *cross_checks(evaluations, threat_of, unit_of), *repeated],
        error=job_error(row),
        provenance=None if row.provenance is None else Provenance.model_validate(row.provenance),
        signature=f"{JOBS_PATH}/{row.id}/signature" if complete else None,
    )


def _once(evaluations: Sequence[EvaluationResult]) -> tuple[list[EvaluationResult], list[Warning]]:
    """The evaluations without the notes that say the same of every attack, and one note for the job."""
    found = [
        (index, warning)
        for index, evaluation in enumerate(evaluations)
        for warning in evaluation.warnings
        if warning.code in ONCE
    ]
    if not found:
        return list(evaluations), []
    left = [
        part.model_copy(update={"warnings": [one for one in part.warnings if one.code not in ONCE]})
        for part in evaluations
    ]
    places: dict[str, list[int]] = {}
    first = {warning.message: warning for _, warning in reversed(found)}
    for index, warning in found:
        places.setdefault(warning.message, []).append(index)
    return left, [
        first[message].model_copy(update={"evidence": {"evaluations": indices}})
        for message, indices in places.items()
    ]


def artifact_view(job_id: str, row: ArtifactRow) -> Artifact:
    """An artifact in a list."""
    href = f"{JOBS_PATH}/{job_id}/artifacts/{quote(row.name, safe='')}"
    return view(Artifact, row, href=href, expired=row.expired_at is not None)
