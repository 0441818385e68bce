"""Live state of the jobs on a page, as server-sent events.

All streams share a memory of the jobs' states, which is read again once a second at most: a hundred watchers
of the same jobs cost the database a short query a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool

from assay.service.api.caller import CallerDep
from assay.service.api.deps import StoreDep, StrictRoute, find_job
from assay.service.api.events import EventStream
from assay.service.api.views import AT_WORK, JobViews
from assay.service.contract.errors import ErrorDetail, InvalidSpec, NotFound
from assay.service.contract.results import Job
from assay.service.contract.states import TERMINAL
from assay.service.dashboard import formats
from assay.service.dashboard.frame import made_once
from assay.service.dashboard.job_facts import newest_result
from assay.service.reports.numbers import left_text, speed_text
from assay.service.store.tenants import TenantStore

router = APIRouter(route_class=StrictRoute)

MAX_JOBS = 50
FRESH_SECONDS = 1.0
CHECK_SECONDS = 15.0
# A browser waits so long before it connects again.
RETRY_MILLISECONDS = 3000
LiveState = dict[str, Any]


class LiveStates:
    """The latest state of jobs, each at most a second old.

    Streams wait for one another on the event loop, and one at a time reads in a thread: a hundred watchers
    must not take all threads of the service, on which its pages wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, LiveState | None]] = {}
        self._turn = asyncio.Lock()

    async def follow(self, store: TenantStore, job_ids: Sequence[str], since: float) -> list[LiveState]:
        """States of the jobs that are still there, read at `since` or later (of `time.monotonic`)."""
        if (found := self._fresh(job_ids, since)) is not None:
            return found
        async with self._turn:
            if (found := self._fresh(job_ids, since)) is not None:
                return found
            return await run_in_threadpool(self.of, store, job_ids, since=since)

    def of(self, store: TenantStore, job_ids: Sequence[str], *, since: float = 0.0) -> list[LiveState]:
        """States of the jobs that are still there; states read before the time `since` are read again."""
        now = time.monotonic()
        least = max(since, now - FRESH_SECONDS)
        with self._lock:
            stale = [job_id for job_id in job_ids if self._read_at(job_id) < least]
        read = _states(store, stale)
        with self._lock:
            kept = {key: value for key, value in self._known.items() if now - value[0] < 10 * FRESH_SECONDS}
            self._known = kept | {job_id: (now, read.get(job_id)) for job_id in stale}
            states = [self._known[job_id][1] for job_id in job_ids if job_id in self._known]
        return [state for state in states if state is not None]

    def _fresh(self, job_ids: Sequence[str], since: float) -> list[LiveState] | None:
        least = max(since, time.monotonic() - FRESH_SECONDS)
        with self._lock:
            if any(self._read_at(job_id) < least for job_id in job_ids):
                return None
            states = [self._known[job_id][1] for job_id in job_ids]
        return [state for state in states if state is not None]

    def _read_at(self, job_id: str) -> float:
        return self._known[job_id][0] if job_id in self._known else float("-inf")


def _states(store: TenantStore, job_ids: Sequence[str]) -> dict[str, LiveState]:
    rows = []
    for job_id in job_ids:
        with contextlib.suppress(NotFound):
            rows.append(store.jobs.get(job_id))
    return {job.id: _state(store, job) for job in JobViews(store, rows).all()} if rows else {}


def _state(store: TenantStore, job: Job) -> LiveState:
    results = 0
    if job.state in AT_WORK:
        with contextlib.suppress(NotFound):  # deleted meanwhile
            results = newest_result(store, job.id)
    return {
        "id": job.id,
        "state": job.state.value,
        "ended": job.state in TERMINAL,
        "share": formats.done_share(job),
        "done": job.progress.done,
        "total": job.progress.total,
        "left": left_text(job),
        "speed": speed_text(job.progress),
        "message": formats.short(job.message, 200),
        "results": results,
    }


@router.get("/live", include_in_schema=False)
def live(
    jobs: Annotated[str, Query(min_length=1, max_length=40 * MAX_JOBS)],
    request: Request,
    store: StoreDep,
    caller: CallerDep,
) -> Response:
    """States of jobs whenever they change, until all have ended."""
    ids = list(dict.fromkeys(jobs.split(",")))
    if len(ids) > MAX_JOBS:
        message = f"give at most {MAX_JOBS} job ids, separated by commas"
        raise InvalidSpec(message, [ErrorDetail(loc=["query", "jobs"], message=message, given=len(ids))])
    for job_id in ids:
        find_job(store, job_id)  # refuses jobs that the caller does not see
    states = made_once(request.app, LiveStates)
    opener = request.app.state.store
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    pieces = _stream(states, store, ids, lambda: caller.still_allowed(opener()))
    return EventStream(pieces, headers=headers, media_type="text/event-stream")


async def _stream(
    states: LiveStates, store: TenantStore, ids: Sequence[str], allowed: Any
) -> AsyncGenerator[str, None]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n"
    told: dict[str, LiveState] = {}
    sent = looked = time.monotonic()
    # a page that was loaded after its job was retried must not hear that it has ended.
    since = sent
    while True:
        try:
            if time.monotonic() - looked >= CHECK_SECONDS:
                looked = time.monotonic()
                if not await run_in_threadpool(allowed):
                    return
            found = await states.follow(store, ids, since)
        except (DBAPIError, PoolTimeout):
            found = []  # the database is away
        changed = [state for state in found if told.get(state["id"]) != state]
        told |= {state["id"]: state for state in changed}
        if changed:
            sent = time.monotonic()
            yield f"data: {json.dumps(changed, separators=(',', ':'))}\n\n"
        elif time.monotonic() - sent >= CHECK_SECONDS:
            sent = time.monotonic()
            yield ": nothing new\n\n"
        if found and len(told) == len(ids) and all(state["ended"] for state in found):
            yield "event: end\ndata: {}\n\n"
            return
        await asyncio.sleep(FRESH_SECONDS)
