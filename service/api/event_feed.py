"""News of jobs for open streams: one task asks the database for all of them.

A feed belongs to the event loop that its methods are called on. Its task runs while there are subscriptions,
and costs the database one short query per poll for any number of streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool

from assay.service.contract.errors import TooManyRequests
from assay.service.store.rows import EventRow
from assay.service.store.store import Store

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.25
AWAY_SECONDS = 1.0
MAX_WAITING = 1000  # A client with more unread events than this is cut off and must reconnect.

News = list[EventRow] | None


class Subscription:
    """One stream's subscription to the feed of a job."""

    def __init__(self, job_id: str, start: int) -> None:
        self.job_id = job_id
        self.start = start  # events up to this number are in the database already and never in the queue
        self.queue: asyncio.Queue[News] = asyncio.Queue()  # later events, in order; None ends it
        self.over = False

    def put(self, news: News) -> None:
        """Adds events; a queue that is too long is discarded and ended."""
        if self.over:
            return
        if self.queue.qsize() >= MAX_WAITING:
            while not self.queue.empty():
                self.queue.get_nowait()
            news = None
        self.over = news is None
        self.queue.put_nowait(news)


class Topic:
    """A followed job: the number of the last event handed out, and its subscriptions."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.subscriptions: set[Subscription] = set()


class Feed:
    """All open streams of this process."""

    def __init__(self, opener: Callable[[], Store], poll_seconds: float = POLL_SECONDS) -> None:
        self._opener = opener
        self._poll_seconds = poll_seconds
        self._topics: dict[str, Topic] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(len(topic.subscriptions) for topic in self._topics.values())

    @property
    def polling(self) -> bool:
        """Whether the task runs."""
        return self._task is not None

    def subscribe(self, job_id: str, newest: int) -> Subscription:
        """Begins to follow an existing job; `newest` numbers an event that is already in the database."""
        topic = self._topics.setdefault(job_id, Topic(newest))
        subscription = Subscription(job_id, topic.position)
        topic.subscriptions.add(subscription)
        if self._closed:
            subscription.put(None)
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="events")
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forgets a stream; the task ends with the last stream."""
        topic = self._topics.get(subscription.job_id)
        if topic is None:
            return
        topic.subscriptions.discard(subscription)
        if not topic.subscriptions:
            del self._topics[subscription.job_id]
        if not self._topics:
            self._stop()

    def close(self) -> None:
        """Ends all streams, and every later one at once: for the service's shutdown."""
        self._closed = True
        for topic in self._topics.values():
            for subscription in topic.subscriptions:
                subscription.put(None)
        self._stop()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        away = False
        while True:
            await asyncio.sleep(AWAY_SECONDS if away else self._poll_seconds)
            positions = {job_id: topic.position for job_id, topic in self._topics.items()}
            try:
                news = await run_in_threadpool(self._ask, positions)
                away = False
            except (DBAPIError, PoolTimeout) as error:
                if not away:
                    logger.warning("events: the database is away: %s", error)
                away = True
            except Exception:  # after any error, streams that look open must not fall silent
                logger.exception("events: unexpected error, going on")
                away = True
            else:
                self._hand_out(news)

    def _ask(self, positions: Mapping[str, int]) -> Mapping[str, News]:
        return self._opener().events.since(positions)

    def _hand_out(self, news: Mapping[str, News]) -> None:
        for job_id, rows in news.items():
            topic = self._topics.get(job_id)
            if topic is None:
                continue
            # A topic dropped and followed again meanwhile may be further already.
            fresh = None if rows is None else [row for row in rows if row.seq > topic.position]
            if fresh:
                topic.position = fresh[-1].seq
            if fresh is None or fresh:
                for subscription in topic.subscriptions:
                    subscription.put(fresh)


class StreamLimit:
    """How many streams may be open at a time; for the event loop only."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._open: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many streams are open."""
        return self._open.total()

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """A stream of a tenant; TooManyRequests: there are as many streams as allowed."""
        if self._open[tenant] >= self._most_each:
            raise TooManyRequests(
                f"{self._open[tenant]} event streams of this tenant are open; allowed: {self._most_each}"
                " (ASSAY_MAX_STREAMS_PER_TENANT); end one, or poll `GET /api/v1/jobs/{id}`"
            )
        if self.count >= self._most:
            raise TooManyRequests(
                f"{self._most} event streams are open, which is all that this service allows"
                " (ASSAY_MAX_STREAMS); try again, or poll `GET /api/v1/jobs/{id}`"
            )
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]
