"""What the routes of the gateway share: the caller's pool, its claim, what a report may hold, files."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request, Response
from starlette.responses import JSONResponse

from assay.service.api.caller import caller_in
from assay.service.api.deps import check_query, raw_body, system_store
from assay.service.api.direct_routes import DirectRoute, Handler
from assay.service.contract.errors import ErrorDetail, InvalidSpec, TooManyRequests
from assay.service.contract.fleet.gateway import BeatPart, ClaimCall, WorkerCall
from assay.service.contract.fleet.worker_records import MAX_STAGED, Gauges
from assay.service.contract.records import Evidence
from assay.service.contract.strict_json import parse_json
from assay.service.contract.typed_values import faults
from assay.service.dashboard.frame import made_once
from assay.service.gateway.claims import ClaimTokens
from assay.service.gateway.reports import ProgressReports
from assay.service.gateway.transactions import WorkerStanding, WorkerTransactions, version_of
from assay.service.gateway.waiting import WaitingRoom
from assay.service.settings import Settings
from assay.service.store.fleet.cordons import Cordon
from assay.service.store.fleet.heartbeats import SignOfLife, sign_of_life
from assay.service.store.fleet.lanes import OpenLane
from assay.service.store.rows import Claim
from assay.service.store.store import Store

T = TypeVar("T")
NO_POOL = "local"  # Of workers of a service that asks for no keys
FAULTS_SHOWN = 5
BODIES_AT_ONCE = 4  # Parsed and recorded
BODIES_OF_POOL = 16  # Received or waiting to be parsed
THREADS = 8  # Of calls in the database: more would wait for each other
FRESH_SECONDS = 1.0  # Two turns of the waiting room
SMALL_BODY = 16 * 1024  # In bytes: parsed sooner than a thread is found
MAX_STOOD = 10_000


@dataclass
class Shared:
    """What the calls of a process share."""

    room: WaitingRoom = field(default_factory=WaitingRoom)
    reports: ProgressReports = field(default_factory=ProgressReports)
    bodies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BODIES_AT_ONCE))
    threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS))
    tokens: ClaimTokens | None = None
    transactions: WorkerTransactions | None = None
    noted: tuple[float, str, tuple[Any, ...]] = (float("-inf"), "", ())  # When, lanes, marks
    stood: dict[str, tuple[Any, WorkerStanding]] = field(default_factory=dict)  # By worker, for what it asked
    held: Counter[str] = field(default_factory=Counter)
    # Bytes of uploads in flight, by job. Those of other processes lie on their disks until they are placed,
    # which looks at all files of the job again: too many are never kept.
    arriving: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def holding(self, pool: str) -> Iterator[None]:
        """Counts a large body of a pool. Raises TooManyRequests."""
        if self.held[pool] >= BODIES_OF_POOL:
            raise TooManyRequests(
                f"{BODIES_OF_POOL} large bodies of these workers are on their way; try again", retry_after=1.0
            )
        self.held[pool] += 1
        try:
            yield
        finally:
            self.held[pool] -= 1


@dataclass(frozen=True)
class WorkerGateway:
    """What a call of a worker needs of the service; `pool` is the tenant of its key."""

    store: Store
    settings: Settings
    pool: str
    tokens: ClaimTokens
    transactions: WorkerTransactions
    shared: Shared

    async def in_thread(self, ask: Callable[..., T], *given: Any, **named: Any) -> T:
        """Runs a part of a call that takes long or asks the database."""
        return await to_thread.run_sync(partial(ask, *given, **named), limiter=self.shared.threads)

    def named(self, name: str) -> str:
        """A worker's id or name in this service: two pools never share one."""
        return f"{self.pool}:{name}"

    def claim(self, token: str) -> Claim:
        """The claim of a token. Raises Forbidden."""
        return self.tokens.claim(token, self.pool)

    def sign(self, beat: BeatPart) -> SignOfLife:
        """A sign of life as the store takes it. Raises InvalidSpec."""
        found = self._sign(beat)
        if not self.store.workers.heartbeats.has_said(found):
            check_facts(beat.gauges, Gauges, "gauges")
            if (staged := len(beat.gauges.get("staged", ()))) > MAX_STAGED:
                raise InvalidSpec(f"gauges.staged: {staged} data sets; allowed: {MAX_STAGED}")
        return found

    def standing(self, call: WorkerCall, *, beat: bool = True) -> WorkerStanding:
        """How a worker stands, after its sign of life, if any."""
        sign = self.sign(call.beat) if beat and call.beat is not None else None
        named = self.named(call.name)
        return self.transactions.standing(named, call.identity, call.device_classes, sign)

    def remember(self, call: ClaimCall, known: WorkerStanding) -> None:
        """Keeps how a worker stands, for `unchanged`."""
        stood = self.shared.stood
        if len(stood) >= MAX_STOOD:
            stood.clear()
        stood[self.named(call.worker)] = (_asked(call), known)

    def unchanged(self, call: ClaimCall) -> WorkerStanding | None:
        """How a worker stands that asks as before, by the waiting room's last look; else None."""
        asked, known = self.shared.stood.get(self.named(call.worker), (None, None))
        return known if known is not None and asked == _asked(call) and self.still(known) else None

    def keeps(self, beat: BeatPart | None) -> bool:
        """Keeps a sign of life that says nothing new, for the waiting room's next look; else False."""
        if beat is None:
            return True
        sign, heartbeats = self._sign(beat), self.store.workers.heartbeats
        if not heartbeats.has_said(sign):
            return False
        heartbeats.keep(sign)
        return True

    def told(self, known: WorkerStanding, name: str) -> dict[str, Any]:
        """What a worker must know before it asks for a shard."""
        opened = known.lanes
        return {
            "cordon": cordon_told(known.cordon, name),
            "admitted": known.admitted,
            "lanes": [{"lane": one.lane._asdict(), "stated": self._mine(one, name)} for one in opened],
            "version": self._judged(known.version),
            "planning": known.planning,
            "published": self.settings.published_version,
        }

    def lanes_version(self) -> str:
        """The version of lanes and store of data now; the marks of standings are noted with it."""
        begun = time.monotonic()
        lanes, marks = self.transactions.lanes_and_marks()
        version = self._judged(version_of(lanes))
        self.shared.noted = (begun, version, marks)
        return version

    def still(self, known: WorkerStanding) -> bool:
        """Whether the worker stands as it did, by the waiting room's last look."""
        at, *noted = self.shared.noted
        return time.monotonic() - at < FRESH_SECONDS and noted == [self._judged(known.version), known.marks]

    def _judged(self, lanes: str) -> str:
        """A version of what workers judge: of the open lanes and of the store of data."""
        return f"{lanes}{self.settings.published_version}"

    def _sign(self, beat: BeatPart) -> SignOfLife:
        return sign_of_life(
            self.named(beat.worker),
            beat.host,
            beat.device_classes,
            beat.pid,
            Gauges(**beat.gauges),  # type: ignore[typeddict-item]
            beat.devices,
            self.named(beat.name),
            beat.identity,
        )

    def _mine(self, opened: OpenLane, name: str) -> Mapping[str, Any]:
        """A lane's requirements in the words of a worker, which does not know its pool."""
        stated: dict[str, Any] = dict(opened.stated)
        if stated.get("besides") == self.named(name):
            stated["besides"] = name
        return stated


async def _gateway(request: Request) -> WorkerGateway:
    store, key, shared = (
        await system_store(request),
        caller_in(request.scope).key,
        made_once(request.app, Shared),
    )
    if shared.tokens is None or shared.transactions is None:
        shared.tokens = store.part(ClaimTokens)
        shared.transactions = store.part(partial(WorkerTransactions, workers=store.workers))
        request.app.state.at_stop += [shared.room.close, shared.reports.close]
    pool = NO_POOL if key is None else key.tenant
    return WorkerGateway(store, request.app.state.settings, pool, shared.tokens, shared.transactions, shared)


GatewayDep = Annotated[WorkerGateway, Depends(_gateway)]


class WorkerRoute(DirectRoute):
    """A route that gives its function `body`, `gateway` and `request` itself, and runs it in one thread.

    FastAPI's dependencies and encoder cost more than a renewal. Routes with other parameters use these.
    """

    def direct_handler(self) -> Handler | None:
        """As `DirectRoute`."""
        answer, wanted = self.endpoint, inspect.signature(self.endpoint).parameters.keys()
        if not wanted <= {"request", "body", "gateway"}:
            return None
        is_coroutine = inspect.iscoroutinefunction(answer)

        async def handle(request: Request) -> Response:
            check_query(request, {})
            gateway = await _gateway(request)
            given: dict[str, Any] = {"request": request, "gateway": gateway}
            if "body" in wanted:
                raw, depth = await raw_body(request), request.app.state.settings.max_json_depth
                small = len(raw) <= SMALL_BODY
                given["body"] = (
                    parse_json(raw, depth) if small else await gateway.in_thread(parse_json, raw, depth)
                )
            arguments = {name: given[name] for name in wanted}
            found = await (answer(**arguments) if is_coroutine else gateway.in_thread(answer, **arguments))
            return found if isinstance(found, Response) else JSONResponse(found)

        return handle


def check_facts(value: Any, hint: Any, where: str) -> None:
    """Raises InvalidSpec, with each place at fault, where a value is not of a type of the contract."""
    found = [*islice(faults(value, hint, where, open_types=(Evidence,)), FAULTS_SHOWN)]
    if found:
        details = [ErrorDetail(loc=["body", where], message=one[:300]) for one in found]
        raise InvalidSpec(f"the worker's report is none: {found[0][:300]}", details)


def _asked(call: ClaimCall) -> tuple[Any, ...]:
    """What a worker's standing hangs on, beside the marks."""
    return call.name, call.identity, tuple(call.device_classes)


def cordon_told(cordon: Cordon | None, name: str) -> dict[str, Any] | None:
    """A worker's cordon, as the worker knows itself."""
    return None if cordon is None else {**asdict(cordon), "name": name}
