"""Routes of studies: submit, list, get, results, extend, cancel, retry, delete."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Response
from starlette.responses import JSONResponse

from assay.service.api.artifacts import remove_artifacts
from assay.service.api.deps import (
    BodyDep,
    CatalogDep,
    Cursor,
    DispatcherDep,
    Limit,
    LiveDep,
    SettingsDep,
    StoreDep,
    StrictRouter,
    Submission,
    SubmissionDep,
    located,
    stored,
)
from assay.service.api.errors import documented
from assay.service.api.jobs import IdempotencyKey, canonical_sha256, device_warnings, estimated_work, ring
from assay.service.api.views import device_of, iso
from assay.service.contract.errors import (
    IdempotencyMismatch,
    InvalidState,
    MalformedJson,
    NoResults,
    NotFound,
    UnsupportedMediaType,
)
from assay.service.contract.results import Page
from assay.service.contract.states import JobState
from assay.service.store.ids import is_id
from assay.service.store.tenants import TenantStore
from assay.service.studies.result_wire import StudyResults
from assay.service.studies.rows import StudyJobRow, StudyRow
from assay.service.studies.runs import training_key
from assay.service.studies.store import Studies, unknown_study
from assay.service.studies.stored_results import results_of
from assay.service.studies.submission import ValidStudy, check_seeds, check_study
from assay.service.studies.text import to_csv, to_markdown
from assay.service.studies.wire import (
    ArmEstimate,
    ArmRun,
    RunState,
    StudyArm,
    StudyDryRun,
    StudyLinks,
    StudyProgress,
    StudyStatus,
    StudySummary,
    notes_of,
)

STUDIES_PATH = "/api/v1/studies"
router = StrictRouter(prefix=STUDIES_PATH, tag="studies")
ROUTERS, BEFORE = (router,), "stream_events"
StudyFormat = Annotated[Literal["json", "csv", "md", "markdown"], Query()]


def _study(
    study_id: Annotated[str, Path(description="study id", examples=["01jd3q0x5v8f7m2n9k4t6w1z0s"])],
    store: StoreDep,
) -> StudyRow:
    """Malformed ids never reach the database."""
    if not is_id(study_id):
        raise unknown_study(study_id)
    return store.features.of(Studies).get(study_id)


StudyDep = Annotated[StudyRow, Depends(_study)]


@router.post(
    "",
    summary="Submit a study",
    status_code=201,
    response_model=StudyStatus,
    responses={
        200: {
            "model": StudyStatus | StudyDryRun,
            "description": "The same study (`Idempotency-Key`), or a dry run",
        },
        201: located("study"),
        **documented(MalformedJson, UnsupportedMediaType, IdempotencyMismatch),
    },
)
def submit_study(
    body: BodyDep,
    service: SubmissionDep,
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="plan and estimate, store nothing")] = False,
) -> Response:
    """Checks the study as its jobs are checked, and queues all of them, or none.

    Each arm and seed becomes a training and an evaluation of its weights; equal trainings are shared.
    """
    store, digest = service.store, canonical_sha256(body)
    if idempotency_key is not None and not dry_run:
        known = store.features.of(Studies).known(idempotency_key, digest)
        if known is not None:
            return _submitted(known, created=False)
    work = partial(estimated_work, service)
    valid = check_study(service.catalog, body, work=work, **service.environment)
    if dry_run:
        return JSONResponse(_planned(service, valid).model_dump(mode="json"))
    row, created = store.features.of(Studies).add(
        valid.spec, valid.templates, body_sha256=digest, idempotency_key=idempotency_key
    )
    if created:
        _ring(store, service.dispatcher, [run.job_id for run in row.runs])
    return _submitted(row, created=created)


@router.get("", summary="List studies, newest first")
def list_studies(store: StoreDep, limit: Limit = 50, cursor: Cursor | None = None) -> Page[StudySummary]:
    """A page of the studies; `next_cursor` leads to the next page."""
    rows, following = store.features.of(Studies).page(limit=limit, cursor=cursor)
    return Page(items=[StudySummary.model_validate(_summary(row)) for row in rows], next_cursor=following)


@router.get("/{study_id}", summary="Look at a study", responses=documented(NotFound))
def get_study(study: StudyDep) -> StudyStatus:
    """State, progress, the jobs of each arm and seed, and the spec with every default filled in."""
    return study_view(study)


@router.get(
    "/{study_id}/results",
    summary="Results of a study",
    response_model=StudyResults,
    responses={
        200: {
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "text/markdown": {"schema": {"type": "string"}},
            }
        },
        **documented(NotFound, NoResults),
    },
)
def get_study_results(
    study: StudyDep,
    store: StoreDep,
    catalog: CatalogDep,
    format: StudyFormat = "json",  # noqa: A002 (the contract's name)
) -> Response | StudyResults:
    """Means over seeds, differences to the baseline arm with intervals, tests and adjusted p-values.

    From what has finished; `complete` is false while runs are missing.
    """
    found = results_of(store, study)
    if format == "json":
        return found
    text, suffix = (to_csv(found), "csv") if format == "csv" else (to_markdown(found), "md")
    return Response(
        text,
        media_type="text/csv; charset=utf-8" if format == "csv" else "text/markdown; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="assay-study-{study.id}.{suffix}"'},
    )


@router.post(
    "/{study_id}/seeds",
    summary="Add seeds to a study",
    status_code=202,
    responses=documented(MalformedJson, NotFound),
)
def extend_study(study: StudyDep, body: BodyDep, store: StoreDep, dispatcher: DispatcherDep) -> StudyStatus:
    """Queues the jobs of more seeds, `{"seeds": [3, 4]}`; seeds that the study has are passed over."""
    row, made = store.features.of(Studies).extend(study.id, check_seeds(body))
    _ring(store, dispatcher, made)
    return study_view(row)


@router.post(
    "/{study_id}/cancel",
    summary="Cancel a study",
    status_code=202,
    responses=documented(NotFound, InvalidState),
)
def cancel_study(study: StudyDep, store: StoreDep, live: LiveDep, dispatcher: DispatcherDep) -> StudyStatus:
    """Cancels all its jobs that have not ended, as `POST /jobs/{id}/cancel` does."""
    row = store.features.of(Studies).cancel(study.id)
    for job_id in row.states:
        if row.states[job_id] is JobState.CANCELING:
            live.cancel(store.jobs.get(job_id))
    _ring(store, dispatcher, list(row.states))
    return study_view(row)


@router.post(
    "/{study_id}/retry",
    summary="Resume a study",
    status_code=202,
    responses=documented(NotFound, InvalidState),
)
def retry_study(study: StudyDep, store: StoreDep, dispatcher: DispatcherDep) -> StudyStatus:
    """Queues its failed, canceled and timed-out jobs again; what they have finished is kept."""
    row, queued = store.features.of(Studies).retry(study.id)
    _ring(store, dispatcher, queued)
    return study_view(row)


@router.delete(
    "/{study_id}",
    summary="Delete a study that has ended",
    status_code=204,
    responses=documented(NotFound, InvalidState),
)
def delete_study(study: StudyDep, store: StoreDep, settings: SettingsDep) -> None:
    """Deletes the study with its jobs, their results and artifacts."""
    for job_id in store.features.of(Studies).delete(study.id):
        remove_artifacts(settings.file_store, job_id)


def study_view(row: StudyRow) -> StudyStatus:
    """The study as users see it."""
    states = row.states
    share = {run.job_id: run.share for run in row.runs}
    done = sum(state is JobState.SUCCEEDED for state in states.values())
    progress = StudyProgress(done=done, total=len(states), share=sum(share.values()) / max(1, len(share)))
    return StudyStatus(
        **_summary(row),
        progress=progress,
        message=_message(row),
        notes=notes_of(_trained(row), len(row.spec["seeds"])),
        runs=[_arm(row, index) for index in range(len(row.templates))],
        spec=row.spec,
    )


def _trained(row: StudyRow) -> list[tuple[str, bool]]:
    return [(template["name"], template["train"] is not None) for template in row.templates]


def _summary(row: StudyRow) -> dict[str, Any]:
    path = f"{STUDIES_PATH}/{row.id}"
    return {
        "id": row.id,
        "name": row.name,
        "tags": row.spec["tags"],
        "state": study_state(list(row.states.values())),
        "created_at": iso(row.created_at),
        "arms": [template["name"] for template in row.templates],
        "seeds": row.spec["seeds"],
        "jobs": dict(sorted(Counter(map(str, row.states.values())).items())),
        "links": StudyLinks(self=path, results=f"{path}/results"),
    }


def study_state(states: list[RunState]) -> JobState:
    """The state of a study from the states of its jobs, as `StudySummary` says."""
    found = set(states)
    if JobState.CANCELING in found:
        return JobState.CANCELING
    if found & {JobState.QUEUED, JobState.WAITING, JobState.STARTING, JobState.RUNNING}:
        return JobState.QUEUED if found <= {JobState.QUEUED, JobState.WAITING} else JobState.RUNNING
    if found == {JobState.SUCCEEDED}:
        return JobState.SUCCEEDED
    if found & {JobState.FAILED, JobState.TIMED_OUT, "deleted"}:
        return JobState.FAILED
    return JobState.CANCELED


def _message(row: StudyRow) -> str:
    lost = {
        run.job_id: f"job {run.job_id} {run.state}{f': {run.message}' if run.message else ''}"
        for run in sorted(row.runs, key=lambda run: (run.role != "train", run.job_id))
        if run.state in (JobState.FAILED, JobState.TIMED_OUT, "deleted")
    }
    if not lost:
        return ""
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    return next(iter(lost.values())) + more


def _arm(row: StudyRow, index: int) -> StudyArm:
    mine: dict[int, dict[str, StudyJobRow]] = {}
    for run in row.runs:
        if run.arm == index:
            mine.setdefault(run.seed, {})[run.role] = run
    earlier = {run.job_id for run in row.runs if run.arm < index and run.role == "train"}
    runs = []
    for seed in row.spec["seeds"]:
        evaluate, train = mine[seed]["evaluate"], mine[seed].get("train")
        runs.append(
            ArmRun(
                seed=seed,
                train=None if train is None else train.job_id,
                train_state=None if train is None else train.state,
                evaluate=evaluate.job_id,
                evaluate_state=evaluate.state,
                shared=train is not None and train.job_id in earlier,
            )
        )
    template = row.templates[index]
    return StudyArm(name=template["name"], trained=template["train"] is not None, runs=runs)


def _planned(service: Submission, valid: ValidStudy) -> StudyDryRun:
    seeds, keys, arms = len(valid.spec["seeds"]), set[str](), []
    seconds: list[float | None] = []
    for arm in valid.arms:
        train = arm.template["train"]
        key = training_key(train)
        shared = train is not None and key in keys
        keys |= {key} if train is not None else set()
        own = arm.train_work if train is not None and not shared else None
        works = [work for work in (own, arm.evaluate_work) if work is not None]
        seconds += [work["seconds"] for work in works]
        told = [] if train is None else device_warnings(service, train, arm.train_work or {})
        told += device_warnings(service, arm.template["evaluate"], arm.evaluate_work)
        arms.append(
            ArmEstimate(
                name=arm.template["name"],
                trained=train is not None,
                jobs=seeds * len(works),
                shared=seeds if shared else 0,
                train_seconds=arm.train_work["seconds"] if arm.train_work else None,
                evaluate_seconds=arm.evaluate_work["seconds"],
                train=arm.train_work,
                evaluate=arm.evaluate_work,
                warnings=[*arm.warnings, *{(one["code"], one["message"]): one for one in told}.values()],
            )
        )
    known = [one for one in seconds if one is not None]
    trained = [(arm.name, arm.trained) for arm in arms]
    return StudyDryRun(
        spec=valid.spec,
        jobs=sum(arm.jobs for arm in arms),
        trainings=seeds * len(keys),
        evaluations=seeds * len(arms),
        seconds=seeds * sum(known) if len(known) == len(seconds) else None,
        arms=arms,
        notes=notes_of(trained, seeds),
    )


def _submitted(row: StudyRow, *, created: bool) -> Response:
    view = study_view(row)
    return stored(view, view.links.self, status=201 if created else 200)


def _ring(store: TenantStore, dispatcher: DispatcherDep, job_ids: list[str]) -> None:
    """Rings once for the jobs: a ring says no more than that the workers may look."""
    if job_ids:
        ring(dispatcher, job_ids[0], device_of(store.jobs.get(job_ids[0])))
