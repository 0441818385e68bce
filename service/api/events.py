"""Route of a job's events, as server-sent events: nothing on their way may buffer them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, Any, get_args

from fastapi import Header, Query, Request, Response
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from assay.service.api.caller import CallerDep, caller_in
from assay.service.api.deps import JobDep, StoreDep, StoreOpener, StrictRouter
from assay.service.api.errors import documented
from assay.service.api.event_feed import Feed, StreamLimit
from assay.service.api.views import JOBS_PATH
from assay.service.contract.errors import NotFound, TooManyRequests
from assay.service.contract.events import EventType
from assay.service.contract.times import iso
from assay.service.store.rows import EventRow
from assay.service.store.tenants import TenantStore

logger = logging.getLogger(__name__)
router = StrictRouter(prefix=JOBS_PATH, tag="jobs")

COMMENT_SECONDS = 15.0
CHECK_SECONDS = 15.0
RETRY_MILLISECONDS = 1000
PAGE = 500
_EXAMPLE = (
    'id: 3\nevent: state\ndata: {"at":"2026-01-01T00:00:00.000Z","state":"running","attempt":1,'
    '"message":"","error":null}\n\n'
)
_EVENT_SCHEMA = {  # Before OpenAPI 3.2 the schema of a stream describes one of its items.
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$"},
        "event": {"type": "string", "enum": list(get_args(EventType))},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["id", "event", "data"],
}
_DESCRIPTION = """`text/event-stream`. The `id` of an event is its number in the job's sequence, its type is
one of `state`, `progress`, `log`, `metric`, `end`, and its data is JSON with the time `at`. A quiet stream
gets a comment every 15 seconds. The stream ends after `end`."""

Follow = Annotated[bool, Query(description="false ends the stream after the newest event")]
After = Annotated[int, Query(ge=0, le=10**18, description="only events with a higher id")]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        pattern=r"^[0-9]{1,18}$",
        description="the id of the last event that was received; goes before `after`",
    ),
]


class EventStream(StreamingResponse):
    """Server-sent events; however the answer ends, its generator is closed at once."""

    body_iterator: AsyncGenerator[str, None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams to the end or a disconnect; TooManyRequests: no stream is left to the tenant, or to all."""
        limit: StreamLimit = scope["app"].state.streams
        try:
            with limit.one(caller_in(scope).view.tenant or ""):
                await super().__call__(scope, receive, send)
        finally:
            await self.body_iterator.aclose()


@router.get(
    "/{job_id}/events",
    summary="Follow a job",
    response_class=EventStream,
    responses={
        200: {
            "description": _DESCRIPTION,
            "content": {"text/event-stream": {"schema": _EVENT_SCHEMA, "example": _EXAMPLE}},
        },
        204: {"description": "The job has ended and all its events were received: do not connect again"},
        **documented(NotFound, TooManyRequests),
    },
)
def stream_events(
    job: JobDep,
    store: StoreDep,
    caller: CallerDep,
    request: Request,
    after: After = 0,
    follow: Follow = True,
    last_event_id: LastEventId = None,
) -> Response:
    """All events of the job after a given event, then new events as they occur, until the job has ended.

    A client that was cut off reconnects with `Last-Event-ID`, as browsers do by themselves, and misses
    nothing. For jobs with more than a thousand events, older `progress` and `log` events are thinned.
    """
    newest = store.events.newest(job.id)
    position = min(int(last_event_id) if last_event_id is not None else after, newest.seq)
    if newest.type == "end" and position == newest.seq:
        return Response(status_code=204)
    feed: Feed = request.app.state.feed
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # Proxies would cache and buffer.
    kind = "text/event-stream"  # Not by the class: OpenAPI would take it for the type of the errors too.
    opener: StoreOpener = request.app.state.store
    if follow:
        pieces = _stream(feed, store, job.id, position, newest.seq, lambda: caller.still_allowed(opener()))
    else:
        pieces = _past(store, job.id, position, newest.seq)
    return EventStream(pieces, headers=headers, media_type=kind)


async def _stream(
    feed: Feed, store: TenantStore, job_id: str, position: int, newest: int, allowed: Callable[[], bool]
) -> AsyncGenerator[str, None]:
    subscription = feed.subscribe(job_id, newest)
    looked = time.monotonic()
    try:
        yield f"retry: {RETRY_MILLISECONDS}\n\n"
        ended = False
        while position < subscription.start:
            rows = await run_in_threadpool(
                store.events.of, job_id, after=position, until=subscription.start, limit=PAGE
            )
            if not rows:  # the job was deleted, which the feed tells
                break
            position = rows[-1].seq
            ended = rows[-1].type == "end" and position == subscription.start
            yield _text(rows)
        while not ended:
            if time.monotonic() - looked >= CHECK_SECONDS:  # A revoked key must not read on until the end.
                looked = time.monotonic()
                if not await run_in_threadpool(_not_refused, allowed):
                    return
            try:
                news = await asyncio.wait_for(subscription.queue.get(), COMMENT_SECONDS)
            except TimeoutError:
                yield ": nothing new\n\n"
                continue
            if news is None:
                return
            fresh = [row for row in news if row.seq > position]
            if fresh:
                position = fresh[-1].seq
                ended = fresh[-1].type == "end"
                yield _text(fresh)
    except (DBAPIError, PoolTimeout) as error:
        logger.warning("events of job %s: the database is away: %s", job_id, error)
    finally:
        feed.unsubscribe(subscription)


async def _past(store: TenantStore, job_id: str, position: int, newest: int) -> AsyncGenerator[str, None]:
    while position < newest:
        rows = await run_in_threadpool(store.events.of, job_id, after=position, until=newest, limit=PAGE)
        if not rows:  # the job was deleted
            return
        position = rows[-1].seq
        yield _text(rows)


def _not_refused(allowed: Callable[[], bool]) -> bool:
    """Whether the caller may go on. While the database is away: yes, but no new events are sent."""
    try:
        return allowed()
    except (DBAPIError, PoolTimeout):
        return True


def _text(rows: Sequence[EventRow]) -> str:
    return "".join(_event_text(row) for row in rows)


def _event_text(row: EventRow) -> str:
    data: dict[str, Any] = {"at": iso(row.at), **row.data}
    # JSON in ASCII has no line breaks, which would end the field.
    return f"id: {row.seq}\nevent: {row.type}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
