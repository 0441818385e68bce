"""What the routes of the gateway share: the caller's pool, its claim, what a report may hold, files."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Annotated, Any

from fastapi import Depends, Request

from assay.service.api.caller import CallerDep
from assay.service.api.deps import SettingsDep, SystemStoreDep
from assay.service.contract.errors import ErrorDetail, InvalidSpec, TooManyRequests
from assay.service.contract.fleet.gateway import BeatPart, WorkerCall
from assay.service.contract.fleet.worker_records import Gauges
from assay.service.contract.records import Evidence
from assay.service.contract.typed_values import faults
from assay.service.dashboard.frame import made_once
from assay.service.gateway.claims import ClaimTokens
from assay.service.gateway.waiting import WaitingRoom
from assay.service.settings import Settings
from assay.service.store.fleet.lanes import OpenLane
from assay.service.store.rows import Claim
from assay.service.store.store import Store

NO_POOL = "local"  # Of workers of a service that asks for no keys
FAULTS_SHOWN = 5
BODIES_AT_ONCE = 4  # Parsed and recorded
BODIES_OF_POOL = 16  # Received or waiting to be parsed


@dataclass
class Shared:
    """What the calls of a process share."""

    room: WaitingRoom = field(default_factory=WaitingRoom)
    bodies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BODIES_AT_ONCE))
    tokens: ClaimTokens | None = None
    held: Counter[str] = field(default_factory=Counter)

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
    shared: Shared

    def named(self, name: str) -> str:
        """A worker's id or name in this service: two pools never share one."""
        return f"{self.pool}:{name}"

    def claim(self, token: str) -> Claim:
        """The claim of a token. Raises Forbidden."""
        return self.tokens.claim(token, self.pool)

    def beat(self, beat: BeatPart | None) -> None:
        """Records a sign of life, if any."""
        if beat is None:
            return
        check_facts(beat.gauges, Gauges, "gauges")
        self.store.workers.beat(
            self.named(beat.worker),
            beat.host,
            beat.device_classes,
            beat.pid,
            Gauges(**beat.gauges),  # type: ignore[typeddict-item]
            beat.devices,
            self.named(beat.name),
            beat.identity,
        )

    def standing(self, call: WorkerCall) -> dict[str, Any]:
        """What a worker must know before it asks for a shard."""
        store, cordon = self.store, self.store.cordons.of(self.named(call.name))
        opened = store.lanes.all()
        return {
            "cordon": None if cordon is None else {**asdict(cordon), "name": call.name},
            "admitted": store.identities.admits(call.identity),
            "lanes": [{"lane": one.lane._asdict(), "stated": self._mine(one, call.name)} for one in opened],
            "version": version_of(opened),
            "planning": store.shards.being_planned(call.device_classes),
        }

    def lanes_version(self) -> str:
        """The version of the lanes now."""
        return version_of(self.store.lanes.all())

    def _mine(self, opened: OpenLane, name: str) -> Mapping[str, Any]:
        """A lane's requirements in the words of a worker, which does not know its pool."""
        stated: dict[str, Any] = dict(opened.stated)
        if stated.get("besides") == self.named(name):
            stated["besides"] = name
        return stated


def _gateway(
    request: Request, caller: CallerDep, store: SystemStoreDep, settings: SettingsDep
) -> WorkerGateway:
    shared = made_once(request.app, Shared)
    if shared.tokens is None:
        shared.tokens = store.part(ClaimTokens)
    pool = NO_POOL if caller.key is None else caller.key.tenant
    return WorkerGateway(store, settings, pool, shared.tokens, shared)


GatewayDep = Annotated[WorkerGateway, Depends(_gateway)]


def check_facts(value: Any, hint: Any, where: str) -> None:
    """Raises InvalidSpec, with each place at fault, where a value is not of a type of the contract."""
    found = [*islice(faults(value, hint, where, open_types=(Evidence,)), FAULTS_SHOWN)]
    if found:
        details = [ErrorDetail(loc=["body", where], message=one[:300]) for one in found]
        raise InvalidSpec(f"the worker's report is none: {found[0][:300]}", details)


def version_of(opened: list[OpenLane]) -> str:
    """A version of the open lanes, which changes with them."""
    text = "\n".join(sorted("\t".join(one.lane) for one in opened))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
