"""Routes of jobs: submit, list, get, and the verbs of `contract/verbs.py`."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from fastapi import Depends, Header, Query, Response
from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse

from assay.service.api.artifacts import remove_artifacts
from assay.service.api.deps import (
    BodyDep,
    Cursor,
    DispatcherDep,
    JobDep,
    Limit,
    LiveDep,
    SettingsDep,
    StoreDep,
    StrictRouter,
    Submission,
    SubmissionDep,
    json_body,
    located,
    stored,
    validated,
)
from assay.service.api.errors import documented
from assay.service.api.views import JOBS_PATH, JobViews, device_of, job_view, up_to_date
from assay.service.contract.errors import (
    IdempotencyMismatch,
    InvalidState,
    MalformedJson,
    NotFound,
    UnsupportedMediaType,
)
from assay.service.contract.results import Job, Page, Warning
from assay.service.contract.specs import TagChange
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import Execution, ModelReference, UserSpec
from assay.service.contract.summaries import Sort
from assay.service.contract.verbs import VERBS, Verb
from assay.service.dispatch import Dispatcher
from assay.service.store.connections import DeviceClass
from assay.service.store.rows import JobFilters, JobRow
from assay.service.store.tenants import TenantStore
from assay.service.submission.data_look import look_at_data
from assay.service.submission.estimate import least_work
from assay.service.submission.limits import DEVICE_CLASSES, Speed, bounded_estimate, measured_attacks
from assay.service.submission.validate import ValidSpec, validate
from assay.service.submission.warnings import compiling_warnings, worker_warnings

logger = logging.getLogger(__name__)
FEW_PASSES = 1000  # Backward passes twice; with fewer in a shard, an evaluation's start counts most.
STOPPED = frozenset({JobState.CANCELING, JobState.CANCELED})

router = StrictRouter(prefix=JOBS_PATH, tag="jobs")

Tag = Annotated[str, Query(min_length=1, max_length=64, pattern=r"^[^\x00]+$")]
ModelName = Annotated[str, Query(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
Search = Annotated[
    str,
    Query(min_length=1, max_length=200, pattern=r"^[^\x00]+$", description="a part of the name, or the id"),
]
StudyId = Annotated[str, Query(min_length=1, max_length=64, pattern=r"^[^\x00]+$")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="repeating a call with the same key and body answers with the same job",
    ),
]


class DryRun(BaseModel):
    """Outcome of a submission that was not carried out: the full spec, the estimated work, and warnings.

    `estimate` has examples, forward_passes and backward_passes; seconds of computing on `device`, with
    `seconds_from` (what that number rests on) and `seconds_measured` (whether on measured speed); and the
    limits max_seconds and max_examples, null for none. `data` has what is unreadable, ignored and empty in
    each folder of data, where the call asked to `decode` them.
    """

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any]
    estimate: dict[str, Any]
    warnings: list[Any]
    data: list[dict[str, Any]] = []


@router.post(
    "",
    operation_id="submit_job",
    summary="Submit a job",
    status_code=201,
    response_model=Job,
    responses={
        200: {"model": Job | DryRun, "description": "The same job (`Idempotency-Key`), or a dry run"},
        201: located("job"),
        **documented(MalformedJson, UnsupportedMediaType, IdempotencyMismatch),
    },
)
def submit(
    body: BodyDep,
    service: SubmissionDep,
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="validate and estimate, store nothing")] = False,
    decode: Annotated[
        bool,
        Query(
            description="of a dry run: decode the files of the data for some seconds, and list what is wrong"
        ),
    ] = False,
) -> Response:
    """Validates the spec and queues it. Wrong fields are named in the answer, the first hundred of them.

    A job with estimated work over the service's limits is refused; `dry_run` shows estimate and limits. The
    device `auto` becomes `cuda` where a GPU is online and a CPU would take longer than
    ASSAY_MAX_AUTO_CPU_SECONDS.
    """
    store, digest = service.store, canonical_sha256(body)
    # Before validation: a replay returns the original job, even if its data or weights have changed since.
    if idempotency_key is not None and not dry_run:
        known = store.jobs.known(idempotency_key, digest)
        if known is not None:
            return _submitted(store, known, created=False)
    valid = validate(service.catalog, body, **service.environment)
    settle_device(service, valid)
    work = estimated_work(service, valid)
    if dry_run:
        warnings = [*valid.warnings, *device_warnings(service, valid.spec, work)]
        data = look_at_data(service.catalog, valid.spec, service.settings.data_root) if decode else []
        answer = DryRun(spec=dict(valid.spec), estimate=work, warnings=warnings, data=data)
        return JSONResponse(answer.model_dump(mode="json"))
    row, created = store.jobs.add(valid.spec, body_sha256=digest, idempotency_key=idempotency_key)
    if created:
        ring(service.dispatcher, row.id, device_of(row))
    return _submitted(store, row, created=created)


@router.get("", summary="List jobs")
def list_jobs(
    store: StoreDep,
    state: JobState | None = None,
    kind: Literal["train", "evaluate"] | None = None,
    model: ModelName | None = None,
    tag: Tag | None = None,
    search: Search | None = None,
    study: StudyId | None = None,
    sort: Sort = "-created",
    limit: Limit = 50,
    cursor: Cursor | None = None,
) -> Page[Job]:
    """A page of the jobs that match all given filters; `next_cursor` leads to the next page.

    `sort`: newest first, or by a value, descending with `-`; jobs without the value are last. A page has
    fewer than `limit` jobs where their specs are very long.
    """
    filters: JobFilters = {"state": state, "kind": kind, "model": model, "tag": tag}
    filters |= {"search": search, "study": study}
    rows, following, _ = store.jobs.listed(sort=sort, limit=limit, cursor=cursor, **filters)
    return Page(items=JobViews(store, rows).all(), next_cursor=following)


@router.get("/{job_id}", summary="Look at a job", responses=documented(NotFound))
def get_job(job: JobDep, store: StoreDep, live: LiveDep) -> Job:
    """State, progress, place in the queue, and the spec with every default filled in."""
    return job_view(store, up_to_date(store, live, job))


@dataclass
class Acting:
    """What the verbs on a job need of the service."""

    store: StoreDep
    live: LiveDep
    dispatcher: DispatcherDep
    settings: SettingsDep

    def act(self, verb: Verb, job: JobRow) -> Job | None:
        """Does what a verb says, and tells the workers; the job afterwards, None if it is deleted."""
        row = self.store.jobs.act(verb, job.id)
        if row is None:
            remove_artifacts(self.settings.file_store, job.id)
            return None
        if row.state in STOPPED:
            self.live.cancel(row)
        ring(self.dispatcher, row.id, device_of(row))  # Idle workers may hold its model in memory.
        return job_view(self.store, row)


ActingDep = Annotated[Acting, Depends()]


def _route(verb: Verb) -> None:
    def act(job: JobDep, acting: ActingDep) -> Job | None:
        return acting.act(verb, job)

    router.add_api_route(
        "/{job_id}" if verb.deletes else f"/{{job_id}}/{verb.name}",
        act,
        methods=["DELETE" if verb.deletes else "POST"],
        name=f"{verb.name}_job",
        summary=verb.summary,
        description=verb.description,
        status_code=204 if verb.deletes else 202,
        response_model=None if verb.deletes else Job,
        responses=documented(NotFound, InvalidState),
    )


for _verb in VERBS:
    _route(_verb)


@router.post(
    "/{job_id}/tags",
    name="tag_job",
    summary="Change the tags of a job",
    responses=documented(NotFound, MalformedJson, UnsupportedMediaType, InvalidState),
    openapi_extra=json_body(TagChange),
)
def tag_job(job: JobDep, body: BodyDep, store: StoreDep) -> Job:
    """Removes tags, then adds tags; a tag to add that is there, or to remove that is not, changes nothing."""
    change = validated(TagChange, body)
    return job_view(store, store.jobs.tag(job.id, change.add, change.remove))


def _submitted(store: TenantStore, row: JobRow, *, created: bool) -> Response:
    view = job_view(store, row)
    return stored(view, view.links.self, status=201 if created else 200)


def settle_device(service: Submission, valid: ValidSpec) -> None:
    """Changes `auto` in a valid spec to `cuda`, where a GPU is online and a CPU would take too long."""
    execution, most = valid.spec["execution"], service.settings.max_auto_cpu_seconds
    if execution["device"] != "auto" or not most:
        return
    if not service.store.workers.online_lately("cuda", execution.get("devices", 1)):
        return
    speed = _speed(service, valid.spec["model"], "cpu")
    work = least_work(service.catalog, valid.spec, service.settings.data_root)
    if work.passes * speed.seconds_per_pass > most:
        execution["device"] = "cuda"


def estimated_work(service: Submission, valid: ValidSpec) -> dict[str, Any]:
    """The estimated work of a valid job on the workers that there are; InvalidSpec: over a service limit."""
    return bounded_estimate(
        service.catalog,
        valid.spec,
        valid.estimate,
        service.settings.job_limits,
        _device_classes(service.store, valid.spec["execution"]),
        lambda device: _speed(service, valid.spec["model"], device),
        service.settings.data_root,
    )


def _device_classes(store: TenantStore, execution: Execution) -> list[str]:
    """The device classes of a job: for "auto" the classes with workers online, or all without a worker."""
    if execution["device"] != "auto":
        return [execution["device"]]
    devices = execution.get("devices", 1)
    online = [device for device in DEVICE_CLASSES if store.workers.online_lately(device, devices) > 0]
    return online or list(DEVICE_CLASSES)


def _speed(service: Submission, model: ModelReference, device: str) -> Speed:
    """Speed of a model on a device class: from the caller's finished jobs, else from the settings."""
    found = service.store.results.seconds_per_pass(model, device)
    if found is not None:
        seconds, made = found
        few = "" if made >= FEW_PASSES else f", which made {made} passes, so that its start counts for much"
        source = f"the fastest of your last jobs of this model on {device}{few}"
        attacks = measured_attacks(service.catalog, service.store.results.measured_work(model, device))
        return Speed(seconds, source, measured=True, attacks=attacks)
    rate = service.settings.passes_per_second[cast(DeviceClass, device)]
    guess = f"a guess of {rate:,g} forward passes a second"
    until = f"until a job of yours with exactly this model has finished an evaluation on {device}"
    return Speed(1.0 / rate, f"{guess}, {until}")


def device_warnings(service: Submission, spec: UserSpec, work: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Warnings that a job would wait, take longer, or not be computed as it asks, on the workers online."""
    execution, workers = spec["execution"], service.store.workers
    device, devices = execution["device"], execution.get("devices", 1)
    found = [*compiling_warnings(service.catalog, spec, work)]
    if (devices == 1 and device == "auto") or workers.online(device, devices=devices) > 0:
        with_gpu = workers.serving("cuda")
        serving = with_gpu if device == "cuda" else workers.serving(device)
        found += worker_warnings(service.catalog, spec, serving, with_gpu)
    else:
        wanted = f"{devices} devices" if devices > 1 else f"the device {device!r}"
        message = f"no worker that is online has {wanted}: the job would wait for one (ASSAY_DEVICES)"
        evidence = {"device": device, "devices": devices}
        found.append(Warning(code="no_worker_with_devices", message=message, evidence=evidence))
    return [warning.model_dump() for warning in found]


def canonical_sha256(body: Any) -> str:
    """Hash of a body's content, independent of white space and key order."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def ring(dispatcher: Dispatcher, job_id: str, device: str) -> None:
    """Rings the doorbell; the job is stored, so a broken bell must not fail the call."""
    try:
        dispatcher.ring(job_id, device)
    except Exception:
        logger.exception("the doorbell for job %s failed; workers will find it by polling", job_id)
