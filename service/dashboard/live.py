"""Live state of the jobs on a page, as server-sent events.

All streams share one memory of the jobs' states, which is asked for anew once a second at most: a hundred
watchers of the same jobs cost the database one short query a second.
"""

from __future__ import annotations

import asyncio
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
from assay.service.api.deps import StoreDep, find_job, only
from assay.service.api.events import EventStream
from assay.service.api.views import job_view
from assay.service.contract.errors import ErrorDetail, InvalidSpec, NotFound
from assay.service.contract.states import TERMINAL
from assay.service.dashboard import formats
from assay.service.store.tenants import TenantStore

router = APIRouter()

MAX_JOBS = 50
FRESH_SECONDS = 1.0
CHECK_SECONDS = 15.0
# A browser waits so long before it connects again.
RETRY_MILLISECONDS = 3000
State = dict[str, Any]


class LiveStates:
    """The latest state of jobs, each at most a second old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, State | None]] = {}

    def of(self, store: TenantStore, job_ids: Sequence[str], *, anew: bool = False) -> list[State]:
        """States of those jobs that are still there.

        Args:
            store: of a caller who sees them all.
            job_ids: the jobs.
            anew: ask for those that are remembered, too.
        """
        with self._lock:
            return [state for job_id in job_ids if (state := self._one(store, job_id, anew)) is not None]

    def _one(self, store: TenantStore, job_id: str, anew: bool) -> State | None:
        now = time.monotonic()
        at, state = self._known.get(job_id, (0.0, None))
        if anew or now - at >= FRESH_SECONDS or job_id not in self._known:
            self._known = {
                key: value for key, value in self._known.items() if now - value[0] < 10 * FRESH_SECONDS
            }
            state = _state(store, job_id)
            self._known[job_id] = (now, state)
        return state


def _state(store: TenantStore, job_id: str) -> State | None:
    try:
        job = job_view(store, store.jobs.get(job_id))
    except NotFound:
        return None
    return {
        "id": job.id,
        "state": job.state.value,
        "ended": job.state in TERMINAL,
        "share": formats.done_share(job),
        "done": job.progress.done,
        "total": job.progress.total,
        "eta": None if job.progress.eta_seconds is None else formats.duration(job.progress.eta_seconds),
        "message": formats.short(job.message, 200),
    }


@router.get("/live", include_in_schema=False, dependencies=[only("jobs")])
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
        find_job(store, job_id)  # refuses those that the caller does not see
    states: LiveStates = request.app.state.live_states
    opener = request.app.state.store
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    pieces = _stream(states, store, ids, lambda: caller.still_allowed(opener()))
    return EventStream(pieces, headers=headers, media_type="text/event-stream")


async def _stream(
    states: LiveStates, store: TenantStore, ids: Sequence[str], allowed: Any
) -> AsyncGenerator[str, None]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n"
    told: dict[str, State] = {}
    sent = looked = time.monotonic()
    # A page that was loaded after its job was retried must not hear that it has ended.
    anew = True
    while True:
        try:
            if time.monotonic() - looked >= CHECK_SECONDS:
                looked = time.monotonic()
                if not await run_in_threadpool(allowed):
                    return
            found = await run_in_threadpool(states.of, store, ids, anew=anew)
            anew = False
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
