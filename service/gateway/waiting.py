"""Workers that wait for a shard: however many, each kind of worker is looked up once a turn.

A waiting worker holds no thread and no connection to the database. When there is a shard for a kind, a few of
its workers are woken, and the next when these have claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool

from assay.service.contract.errors import TooManyRequests, Unavailable
from assay.service.contract.limits import Limits
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.store import Store

log = logging.getLogger(__name__)
TURN_SECONDS = 0.5
AT_ONCE = 4  # Woken together: each claim is a transaction

STOPS = "the service stops: ask again"
REST_SECONDS = 5.0  # Of a worker whose time was too short for what is there
KINDS_OF_POOL = 64  # Each is a question to the database
DATABASE_AWAY = (DBAPIError, PoolTimeout)


@dataclass(frozen=True)
class WorkerKind:
    """Workers for whom the same shards are claimable."""

    identity: str
    device_classes: tuple[str, ...]
    devices: int
    without: tuple[str, ...]
    lanes: tuple[Lane, ...]
    seen: str  # version of the lanes, and of the store of data, that were judged


@dataclass(eq=False)
class _Waiter:
    worker: str
    kind: WorkerKind
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    leaves: bool = False
    chosen: bool = False  # For its kind there is something
    ended: bool = False  # Its time is over, or its client gone

    def end(self) -> None:
        """Ends the wait without a shard."""
        self.ended = self.ended or not self.woken.is_set()
        self.woken.set()


class WaitingRoom:
    """The waiting workers of this process."""

    def __init__(self) -> None:
        self._waiting: dict[WorkerKind, list[_Waiter]] = {}
        self._of_worker: dict[str, list[_Waiter]] = {}
        self._kinds: dict[str, Counter[WorkerKind]] = {}  # By pool, of waiters that do not leave
        self._turns: asyncio.Task[None] | None = None
        self._empty: dict[WorkerKind, float] = {}
        self._soon = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rests: dict[tuple[str, WorkerKind], float] = {}  # Until when
        self._closed = False

    def is_empty(self, kind: WorkerKind, seconds: float = TURN_SECONDS) -> bool:
        """Whether a look within the last seconds has found nothing for a kind."""
        return time.monotonic() - self._empty.get(kind, float("-inf")) < seconds

    def ring(self) -> None:
        """There may be something to claim: the next look is now."""
        self._empty.clear()
        if self._loop is not None:  # Many who ring are threads of calls
            self._loop.call_soon_threadsafe(self._soon.set)

    def leave(self, worker: str) -> None:
        """Ends the waits of a worker that stops, starts, or asks again."""
        for waiter in [*self._of_worker.get(worker, ())]:
            if self._loop is not None and not waiter.leaves:
                waiter.leaves = True
                self._uncount(waiter)
                self._loop.call_soon_threadsafe(waiter.woken.set)

    async def close(self) -> None:
        """The service stops: ends all waits and looks, and takes no more; on the loop."""
        self._closed = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.woken.set()
        if self._turns is not None:
            self._turns.cancel()
            await asyncio.wait((self._turns,))

    def rest(self, worker: str, kind: WorkerKind) -> None:
        """A worker that was woken and took nothing is not woken for shards of a kind for some seconds."""
        at = time.monotonic()
        self._rests = {name: until for name, until in self._rests.items() if until > at}
        self._rests[worker, kind] = at + REST_SECONDS

    async def wait(
        self,
        worker: str,
        kind: WorkerKind,
        seconds: float,
        look: Callable[[], RoomLook],
        left: Callable[[], Coroutine[Any, Any, None]],
        besides: WorkerKind | None = None,
    ) -> WorkerKind | None:
        """The kind for which the worker was woken, to claim, within so many seconds; None: for none.

        `besides`: of another supervisor of its node, for which it waits too; `left` returns when it is gone.
        An earlier wait of the worker ends. Raises TooManyRequests: the pool's workers are of too many kinds;
        Unavailable: the service stops.
        """
        if self._closed:
            raise Unavailable(STOPS)
        self._loop = asyncio.get_running_loop()
        self.leave(worker)
        waiter = _Waiter(worker, kind)
        waiters = [waiter, *([] if besides is None else [_Waiter(worker, besides, waiter.woken)])]
        for one in waiters:
            self._check_kinds(worker, one.kind)
        for one in waiters:
            self._enter(one)
        if self._turns is None or self._turns.done():
            self._turns = asyncio.create_task(self._take_turns(look))
        gone, late = asyncio.create_task(left()), self._loop.call_later(seconds, waiter.end)
        gone.add_done_callback(lambda _: waiter.end())
        try:
            await waiter.woken.wait()
            if self._closed:
                raise Unavailable(STOPS)
            if waiter.ended or waiter.leaves or gone.done():
                return None
            return next((one.kind for one in waiters if one.chosen), kind)
        finally:
            for one in waiters:
                self._exit(one)
            late.cancel()
            gone.cancel()

    def _check_kinds(self, worker: str, kind: WorkerKind) -> None:
        kinds = self._kinds.get(pool_of(worker), ())
        if kind not in kinds and len(kinds) >= KINDS_OF_POOL:
            raise TooManyRequests(
                f"workers of {len(kinds)} kinds (code, devices, unfit jobs) wait; allowed: {KINDS_OF_POOL}"
            )

    def _enter(self, waiter: _Waiter) -> None:
        self._waiting.setdefault(waiter.kind, []).append(waiter)
        self._of_worker.setdefault(waiter.worker, []).append(waiter)
        self._kinds.setdefault(pool_of(waiter.worker), Counter())[waiter.kind] += 1

    def _exit(self, waiter: _Waiter) -> None:
        for waiters in (self._waiting[waiter.kind], self._of_worker[waiter.worker]):
            waiters.remove(waiter)
        if not self._waiting[waiter.kind]:
            del self._waiting[waiter.kind]
        if not self._of_worker[waiter.worker]:
            del self._of_worker[waiter.worker]
        if not waiter.leaves:
            self._uncount(waiter)

    def _uncount(self, waiter: _Waiter) -> None:
        pool = pool_of(waiter.worker)
        kinds = self._kinds[pool]
        kinds[waiter.kind] -= 1
        if not kinds[waiter.kind]:
            del kinds[waiter.kind]
        if not kinds:
            del self._kinds[pool]

    async def _take_turns(self, look: Callable[[], RoomLook]) -> None:
        while self._waiting:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._soon.wait(), TURN_SECONDS)
            self._soon.clear()
            kinds = [
                kind
                for kind, waiters in self._waiting.items()
                if not all(waiter.woken.is_set() for waiter in waiters)
            ]
            found = await run_in_threadpool(look().of, kinds)
            self._empty = {kind: time.monotonic() for kind, state in found.items() if state == "empty"}
            for kind, state in found.items():
                if state != "empty":
                    self._wake(kind, everyone=state == "changed")

    def _wake(self, kind: WorkerKind, *, everyone: bool) -> None:
        mine = [one for one in self._waiting.get(kind, ()) if not one.woken.is_set()]
        at = time.monotonic()
        able = [waiter for waiter in mine if self._rests.get((waiter.worker, kind), at) <= at]
        for waiter in mine if everyone else able[:AT_ONCE]:
            waiter.chosen = True
            waiter.woken.set()


def pool_of(worker: str) -> str:
    """The pool in a worker's id."""
    return worker.partition(":")[0]


class RoomLook:
    """One look into the database for all kinds; what the waiting workers say of themselves is written."""

    def __init__(self, store: Store, limits: Limits, version: Callable[[], str]) -> None:
        self._store, self._limits, self._version = store, limits, version

    def of(self, kinds: Sequence[WorkerKind]) -> dict[WorkerKind, str]:
        """For each kind "claimable", "empty", or "changed": its lanes are to be judged again."""
        found = dict.fromkeys(kinds, "empty")
        with contextlib.suppress(*DATABASE_AWAY):
            self._store.workers.write_kept()
            version = self._version() if kinds else ""
            for kind in kinds:
                found[kind] = "changed" if kind.seen != version else self._of(kind)
        return found

    def _of(self, kind: WorkerKind) -> str:
        given = (kind.device_classes, kind.devices, self._limits, kind.identity)
        try:
            is_there = self._store.shards.claimable(*given, without=kind.without, lanes=kind.lanes)
        except DBAPIError as error:  # One kind's failure is not the others'
            log.warning("workers that wait get nothing: %s", type(error.orig).__name__)
            return "empty"
        return "claimable" if is_there else "empty"
