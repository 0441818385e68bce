"""Pages of the whole service: overview, login and logout."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.authentication import COOKIE
from assay.service.api.caller import ActorDep, CallerDep
from assay.service.api.deps import CatalogDep, SettingsDep, StoreDep, StrictRoute, SystemStoreDep
from assay.service.api.health import Readiness, readyz
from assay.service.api.login_page import ASKED, login_response
from assay.service.api.outcome_tables import read_result
from assay.service.api.views import JobViews
from assay.service.contract.results import Job
from assay.service.contract.states import JobState
from assay.service.dashboard.forms import FormDep, see
from assay.service.dashboard.frame import render
from assay.service.reports.numbers import RADIUS, conditions
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

SHOWN_JOBS, SHOWN_EVALUATIONS = 10, 3
BUSY = (JobState.RUNNING, JobState.STARTING, JobState.CANCELING)  # States of jobs that workers hold.


@router.get("/")
def overview(
    request: Request, store: StoreDep, system: SystemStoreDep, settings: SettingsDep, catalog: CatalogDep
) -> Response:
    """Queue, workers, running jobs, recent results, and what is wrong with the fleet."""
    counts = store.jobs.counts()
    # By id: a job that changes its state between two of these is in both.
    found = {row.id: row for state in BUSY for row in store.jobs.page(state=state.value, limit=SHOWN_JOBS)[0]}
    running = list(found.values())
    ready = readyz(system, settings, catalog)
    ended, _ = store.jobs.page(state=JobState.SUCCEEDED.value, limit=SHOWN_JOBS)
    queued, _ = store.jobs.page(state=JobState.QUEUED.value, limit=SHOWN_JOBS)
    values = {
        "title": "Overview",
        "section": "/",
        "counts": counts,
        "total": sum(counts.values()),
        "running": JobViews(store, running).all(),
        "queued": JobViews(store, queued).all(),
        "recent": [
            (job, *(([], 0) if _summarised(job) else _headline(store, row)))
            for job, row in zip(JobViews(store, ended).all(), ended, strict=True)
        ],
        "ready": ready,
        "problems": fleet_problems(ready, waiting=counts.get("queued", 0) + counts.get("starting", 0)),
        "workers": system.online_workers(),
    }
    return render(request, "overview.html", values)


def _summarised(job: Job) -> bool:
    return job.summary is not None and bool(job.summary.clean or job.summary.worst)


def _headline(store: TenantStore, row: JobRow) -> tuple[list[tuple[str, Any]], int]:
    stored = store.results.of(row.id)
    found = [read_result(stored[index]) for index in sorted(stored)[:SHOWN_EVALUATIONS]]
    shown = [
        (part.name, conditions(part).get(RADIUS), next(iter(part.metrics.items()), None)) for part in found
    ]
    metrics = [
        (f"{name} {epsilon}" if epsilon is not None else name, first[1])
        for name, epsilon, first in shown
        if first is not None
    ]
    return metrics, len(stored) - len(found)


def _file_problems(ready: Readiness) -> list[str]:
    found = []
    if ready.artifacts == "not_writable":
        found.append("The service cannot write to the folder of the jobs' files.")
    if ready.wrong_files:
        found.append(f"{ready.wrong_files} files of jobs have other bytes than were stored: see the log.")
    return found


def fleet_problems(ready: Readiness, *, waiting: int) -> list[str]:
    """Sentences on what keeps jobs from running as they should; empty when all is well."""
    found = []
    if not ready.workers_online.get("auto"):
        found.append(
            f"No worker is online, and {waiting} jobs wait for one." if waiting else "No worker is online."
        )
    if ready.redis == "away":
        found.append("Redis is away: progress and cancelling take longer; no result is lost.")
    found += _file_problems(ready)
    if ready.workers_with_another_catalog:
        found.append(
            f"{ready.workers_with_another_catalog} workers have another catalog than this service: they run"
            " another version."
        )
    for part, count in ready.containment_missing.items():
        found.append(f"Containment of evaluators lacks {part} on {count} workers (docs/containment.md).")
    for fault, count in ready.unfit.items():
        found.append(f"Broken on {count} workers, and not served there: {fault}")
    found += [f"Workers have a data set with several contents: {said}." for said in ready.data_disagreements]
    if ready.workers_cordoned:
        found.append(f"{ready.workers_cordoned} workers are cordoned by administrators.")
    if ready.workers_unfit:
        found.append(f"{ready.workers_unfit} workers take no jobs, because no device passed their self-test.")
    unknown = ready.workers_unknown.items()
    found += [f"{count} workers take no jobs: {code}." for code, count in unknown]
    if ready.workers_refusing:
        found.append(
            f"{ready.workers_refusing} workers take no jobs, because their containment is incomplete."
        )
    return found


@router.get("/login")
def login(request: Request, caller: CallerDep) -> Response:
    """The login form; who needs none, or has logged in, gets the overview."""
    if caller.key is None or caller.session is not None:
        return see("/")
    return login_response(ASKED, "/")


@router.post("/logout")
def logout(form: FormDep, caller: CallerDep, by: ActorDep, store: SystemStoreDep) -> Response:
    """Ends the session."""
    del form
    if caller.session is not None:
        store.browser_sessions.close(caller.token, by=by)
    answer = see("/")
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer
