"""The question for a shard: answered now, or within the time that the worker waits, with its standing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from fastapi import Request

from assay.service.api.authentication import GATEWAY_PATH
from assay.service.api.deps import BodyDep, StrictRouter, validated
from assay.service.contract.fleet.gateway import ClaimCall
from assay.service.gateway.calls import FRESH_SECONDS, SMALL_BODY, GatewayDep, WorkerGateway, WorkerRoute
from assay.service.gateway.transactions import WorkerStanding
from assay.service.gateway.waiting import RoomLook, WorkerKind
from assay.service.store.fleet.fair_queue import CHECKS, Lane
from assay.service.store.rows import Claim

router = StrictRouter(prefix=GATEWAY_PATH, tag="gateway", route_class=WorkerRoute)


@router.post("/claim", include_in_schema=False)
async def claim(request: Request, body: BodyDep, gateway: GatewayDep) -> dict[str, Any]:
    """The best shard for a worker, now or within the time that it waits; and its standing."""
    call = validated(ClaimCall, body)
    worker, room = gateway.named(call.worker), gateway.shared.room
    room.leave(worker)
    begun = time.monotonic()
    found, known = await _at_once(request, gateway, call)
    kind = kind_of(call, known)
    woken: WorkerKind | None = None
    if found is None and call.wait_seconds:
        look = RoomLook(gateway.store, gateway.settings.limits, gateway.lanes_version)
        checks = replace(kind, device_classes=(CHECKS,), devices=1, without=()) if call.checks else None
        woken = await room.wait(
            worker, kind, call.wait_seconds, lambda: look, lambda: _left(request), besides=checks
        )
        if woken is not None or not gateway.still(known):
            known = await gateway.in_thread(gateway.standing, call, beat=False)
            gateway.remember(call, known)
        if woken == kind:
            waited = time.monotonic() - begun
            found = await gateway.in_thread(_take, gateway, call, known, kind.lanes, waited)
            if found is None and call.seconds is not None:
                room.rest(worker, kind)
        elif woken is not None:
            room.rest(worker, woken)
    if found is not None:
        if await request.is_disconnected():
            await gateway.in_thread(gateway.store.shards.release, found)
        room.ring()  # for the next of its kind
        if found.kind == "plan":
            known = replace(known, planning=True)
    told = {"claim": None if found is None else vars(found), "standing": gateway.told(known, call.name)}
    return {**told, "checks": woken not in (None, kind)} if call.checks else told


async def _at_once(
    request: Request, gateway: WorkerGateway, call: ClaimCall
) -> tuple[Claim | None, WorkerStanding]:
    """What there is now, and how the worker stands; most calls of a fleet say what the call before said."""
    if call.wait_seconds and len(await request.body()) <= SMALL_BODY:
        known, room = gateway.unchanged(call), gateway.shared.room
        if (
            known is not None
            and room.is_empty(kind_of(call, known), FRESH_SECONDS)
            and gateway.keeps(call.beat)
        ):
            return None, known
    return await gateway.in_thread(_arrive, gateway, call)


def _arrive(gateway: WorkerGateway, call: ClaimCall) -> tuple[Claim | None, WorkerStanding]:
    """Takes the sign of life, looks how the worker stands, and then for a shard."""
    known = gateway.standing(call)
    gateway.remember(call, known)
    kind = kind_of(call, known)
    found = None if gateway.shared.room.is_empty(kind) else _take(gateway, call, known, kind.lanes)
    return found, known


def kind_of(call: ClaimCall, known: WorkerStanding) -> WorkerKind:
    """The kind of the asking worker."""
    named = {Lane(one.device, one.identity, one.requirements) for one in call.lanes}
    # The open lanes that the worker meets: each is a part of a statement.
    lanes = tuple(sorted(named.intersection(one.lane for one in known.lanes)))
    classes, without = tuple(call.device_classes), tuple(call.without)
    return WorkerKind(call.identity, classes, call.devices, without, lanes, call.seen)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _take(
    gateway: WorkerGateway,
    call: ClaimCall,
    known: WorkerStanding,
    lanes: tuple[Lane, ...],
    waited: float = 0.0,
) -> Claim | None:
    if known.cordon is not None or not known.admitted:
        return None
    found = gateway.store.shards.claim(
        gateway.named(call.worker),
        call.device_classes,
        lease_seconds=call.lease_seconds,
        identity=call.identity,
        without=call.without,
        warm_job=call.warm_job,
        warm_shards=call.warm_shards,
        devices=call.devices,
        limits=gateway.settings.limits,
        lanes=lanes,
        seconds=None if call.seconds is None else call.seconds - waited,
        unknown_seconds=call.unknown_seconds,
        admitted=True,
    )
    return None if found is None else gateway.tokens.signed(found)
