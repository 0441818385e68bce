"""Routes of studies: submit, list, get, results, extend, cancel, retry, delete."""

from __future__ import annotations

from collections import Counter
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
    SubmissionDep,
    located,
    stored,
)
from assay.service.api.errors import documented
from assay.service.api.jobs import IdempotencyKey
from assay.service.api.views import iso
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
from assay.service.studies.designs import routes as designs
from assay.service.studies.designs.fixing import fixing_of
from assay.service.studies.designs.wire import Digest
from assay.service.studies.kept.kept_results import kept_results_of
from assay.service.studies.posting import checked_study, fitted_study, planned_study, post_study, ring_jobs
from assay.service.studies.result_wire import StudyResults
from assay.service.studies.rows import StudyJobRow, StudyRow
from assay.service.studies.store import Studies, unknown_study
from assay.service.studies.submission import check_seeds
from assay.service.studies.text import to_csv, to_markdown, until_view
from assay.service.studies.wire import (
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
ROUTERS, BEFORE = (router, designs.router), "stream_events"
MAX_BUDGET = 366 * 86400.0  # seconds
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
        **documented(MalformedJson, UnsupportedMediaType, IdempotencyMismatch, NotFound, InvalidState),
    },
)
def submit_study(
    body: BodyDep,
    service: SubmissionDep,
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="plan and estimate, store nothing")] = False,
    design: Annotated[
        Digest | None, Query(description="digest of a registered design, which the study must be")
    ] = None,
    budget: Annotated[
        float | None,
        Query(gt=0, le=MAX_BUDGET, description="seconds of computing; the study gives up what is beyond"),
    ] = None,
) -> Response:
    """Checks the study as its jobs are checked, and queues all of them, or none.

    Each arm and seed becomes a training and an evaluation of its weights; equal trainings are shared.
    """
    if dry_run:
        valid, changed = fitted_study(service, checked_study(service, body, design), budget)
        planned = planned_study(service, valid)
        planned.notes += [] if changed is None else [changed]
        return JSONResponse(planned.model_dump(mode="json"))
    return _submitted(post_study(service, body, idempotency_key, design=design, budget=budget))


@designs.router.post(
    "/{digest}/studies",
    summary="Submit the study of a registered design",
    status_code=201,
    response_model=StudyStatus,
    responses={
        200: {"model": StudyStatus, "description": "The same study (`Idempotency-Key`)"},
        201: located("study"),
        **documented(NotFound, InvalidState, IdempotencyMismatch),
    },
)
def submit_design(
    digest: designs.DigestPath, service: SubmissionDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Queues the jobs of the design, as `POST /studies` does with its JSON."""
    row = service.store.features.of(Studies).design(digest, own=True)
    return _submitted(post_study(service, row.spec, idempotency_key, design=row.sha256))


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
    found = kept_results_of(store, study)
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
    ring_jobs(store, dispatcher, made)
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
    ring_jobs(store, dispatcher, list(row.states))
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
    ring_jobs(store, dispatcher, queued)
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
        until=until_view(row),
        spec=row.spec,
        fixing=fixing_of(row),
    )


def _trained(row: StudyRow) -> list[tuple[str, bool]]:
    return [(template["name"], template["train"] is not None) for template in row.templates]


def _summary(row: StudyRow) -> dict[str, Any]:
    path = f"{STUDIES_PATH}/{row.id}"
    return {
        "id": row.id,
        "name": row.name,
        "tags": row.spec["tags"],
        "state": JobState.RUNNING if row.looked_for else study_state(_states(row)),
        "created_at": iso(row.created_at),
        "arms": [template["name"] for template in row.templates],
        "seeds": row.spec["seeds"],
        "jobs": dict(sorted(Counter(map(str, row.states.values())).items())),
        "links": StudyLinks(self=path, results=f"{path}/results"),
    }


def _states(row: StudyRow) -> list[RunState]:
    return [run.state for run in row.runs if (run.role, run.state) != ("train", "deleted")]


def study_state(states: list[RunState]) -> JobState:
    """The state of a study from the states of its jobs, as `StudySummary` says; no deleted trainings.

    A training is deleted only when its evaluations have ended: they say what became of it.
    """
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
        if run.state in (JobState.FAILED, JobState.TIMED_OUT)
        or (run.role, run.state) == ("evaluate", "deleted")
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


def _submitted(posted: tuple[StudyRow, bool]) -> Response:
    row, created = posted
    view = study_view(row)
    return stored(view, view.links.self, status=201 if created else 200)
