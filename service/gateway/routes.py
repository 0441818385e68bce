"""The gateway: workers claim shards, renew, report and finish over HTTP, with keys of the scope `worker`.

A call about a shard carries the token of its claim; its fence guards every write, as everywhere.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast

from fastapi import Request

from assay.service.api.authentication import GATEWAY_PATH
from assay.service.api.deps import BodyDep, StrictRouter, validated
from assay.service.contract.errors import InvalidSpec, InvalidState, NotFound
from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.fleet import gateway as wire
from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.records import Columns, OutcomeExtra, PlanWithShards, TrainingSpeed
from assay.service.contract.states import STOPPED
from assay.service.contract.stored_specs import EvaluateJobSpec, Execution
from assay.service.files.json_bounds import JsonBounds
from assay.service.gateway import files, shard_requests
from assay.service.gateway.calls import GatewayDep, WorkerGateway, WorkerRoute, check_facts, cordon_told
from assay.service.gateway.counters import known_sums
from assay.service.settings import Settings
from assay.service.store.rows import Claim, Finished, OutcomeRow, ShardReport
from assay.service.store.transactions.repetition import REPEAT
from assay.service.submission.limits import plan_excess, planned_seconds
from assay.service.submission.plan_faults import check_plan, check_training_plan

router = StrictRouter(prefix=GATEWAY_PATH, tag="gateway", route_class=WorkerRoute)
ROUTERS = (router, shard_requests.router, files.router)
BEFORE = "jobs"  # Most calls of a service with nodes are theirs
MAX_OUTCOME_BYTES = 128 * 1024**2  # Of a shard or a plan; few are read at a time.
BOUNDS = JsonBounds(MAX_OUTCOME_BYTES, values=20_000_000, containers=2_000_000)
SMALL_OUTCOME = 64 * 1024  # Bytes of a body that counts for nothing, however many come
WireAnswer = dict[str, Any]


def body_limits(settings: Settings) -> dict[str, int]:
    """Bytes of bodies, by path."""
    outcomes = {f"{GATEWAY_PATH}/{name}": MAX_OUTCOME_BYTES for name in ("finish", "plan")}
    return {f"{GATEWAY_PATH}/upload": settings.max_checkpoint_bytes, **outcomes}


@router.post("/standing", include_in_schema=False)
def standing(body: BodyDep, gateway: GatewayDep) -> WireAnswer:
    """What a worker must know before it claims; takes its sign of life."""
    call = validated(wire.WorkerCall, body)
    return gateway.told(gateway.standing(call), call.name)


@router.post("/gone", include_in_schema=False)
async def gone(body: BodyDep, gateway: GatewayDep) -> None:
    """A worker stops: it is struck off, and waits no longer."""
    worker = gateway.named(validated(wire.NamedCall, body).worker)
    gateway.shared.room.leave(worker)
    gateway.shared.stood.pop(worker, None)
    await gateway.in_thread(gateway.store.workers.gone, worker)


@router.post("/expire", include_in_schema=False)
async def expire(body: BodyDep, gateway: GatewayDep) -> None:
    """Takes back what the worker has claimed and does not know of; it waits no longer."""
    worker = gateway.named(validated(wire.NamedCall, body).worker)
    gateway.shared.room.leave(worker)
    await gateway.in_thread(gateway.store.shards.expire, dead_owners=[worker], leases=False)


@router.post("/online", include_in_schema=False)
def online(body: BodyDep, gateway: GatewayDep) -> WireAnswer:
    """How many other workers serve a device class."""
    call = validated(wire.OnlineCall, body)
    found = gateway.store.workers.online(call.device, devices=call.devices, besides=call.besides)
    return {"online": found}


@router.post("/unmet", include_in_schema=False)
def unmet(body: BodyDep, gateway: GatewayDep) -> WireAnswer:
    """Whether every online worker of a device class lacks it."""
    call = validated(wire.UnmetCall, body)
    return {"unmet": gateway.store.lanes.unmet(call.device, call.requirements)}


@router.post("/counters", include_in_schema=False)
def counters(body: BodyDep, gateway: GatewayDep) -> None:
    """Adds to the counters of /metrics."""
    gateway.store.counters.add(known_sums(validated(wire.CountersCall, body).counters))


@router.post("/renew", include_in_schema=False)
async def renew(body: BodyDep, gateway: GatewayDep) -> WireAnswer:
    """Extends a lease, and says how to go on; after a sign of life also whether the worker is cordoned."""
    call = validated(wire.RenewCall, body)
    held, told = await gateway.in_thread(_renew, gateway, call)
    if call.progress is not None and told["verdict"] != "lost":
        await _report(gateway, held, call.progress)
    return told


def _renew(gateway: WorkerGateway, call: wire.RenewCall) -> tuple[Claim, WireAnswer]:
    held = gateway.claim(call.token)
    if call.progress is not None:
        check_facts(call.progress.speed, TrainingSpeed, "speed")
    if (beat := call.beat) is None:
        return held, {"verdict": gateway.store.shards.renew(held, call.lease_seconds)}
    sign, name = gateway.sign(beat), gateway.named(beat.name)
    verdict, cordon = gateway.transactions.renew(held, call.lease_seconds, name, sign)
    return held, {"verdict": verdict, "cordon": cordon_told(cordon, beat.name)}


@router.post("/progress", include_in_schema=False)
async def progress(body: BodyDep, gateway: GatewayDep) -> None:
    """Examples or steps done."""
    call = validated(wire.ProgressCall, body)
    check_facts(call.speed, TrainingSpeed, "speed")
    await _report(gateway, await gateway.in_thread(gateway.claim, call.token), call)


async def _report(gateway: WorkerGateway, held: Claim, said: wire.ProgressPart) -> None:
    if held.kind == "evaluate":
        write = partial(gateway.in_thread, gateway.store.shards.report)
        await gateway.shared.reports.take(ShardReport(held, said.done, said.message), write)
    else:
        told = (said.done, said.total, said.message, cast(TrainingSpeed, said.speed))
        await gateway.in_thread(gateway.store.shards.progress, held, *told)


@router.post("/checkpoint", include_in_schema=False)
def checkpoint(body: BodyDep, gateway: GatewayDep) -> None:
    """A step of a training is saved."""
    call = validated(wire.CheckpointCall, body)
    gateway.store.shards.checkpoint(gateway.claim(call.token), call.step)


@router.post("/limit", include_in_schema=False)
def limit(body: BodyDep, gateway: GatewayDep) -> None:
    """Gives the job a deadline."""
    call = validated(wire.LimitCall, body)
    gateway.store.shards.limit(gateway.claim(call.token), call.seconds)


@router.post("/log", include_in_schema=False)
def log(body: BodyDep, gateway: GatewayDep) -> None:
    """A message for the job's user."""
    call = validated(wire.MessageCall, body)
    held = gateway.claim(call.token)
    if gateway.tokens.stands(held):
        gateway.store.jobs.log(held.job_id, call.message)


@router.post("/release", include_in_schema=False)
def release(body: BodyDep, gateway: GatewayDep) -> None:
    """The shard goes back to the queue."""
    call = validated(wire.ReleaseCall, body)
    give_back = gateway.store.shards.device_fault if call.fault else gateway.store.shards.release
    give_back(gateway.claim(call.token), call.message)
    gateway.shared.room.ring()


@router.post("/canceled", include_in_schema=False)
def canceled(body: BodyDep, gateway: GatewayDep) -> None:
    """The shard was stopped as told."""
    gateway.store.shards.canceled(gateway.claim(validated(wire.HeldCall, body).token))


@router.post("/fail", include_in_schema=False)
def fail(body: BodyDep, gateway: GatewayDep) -> WireAnswer:
    """Counts a failure."""
    call = validated(wire.FailCall, body)
    job = gateway.store.shards.fail(
        gateway.claim(call.token),
        call.error_type,
        call.message,
        retry=call.retry,
        fingerprint=call.fingerprint,
    )
    gateway.shared.room.ring()
    return {"state": str(job.state)}


@router.post("/checked", include_in_schema=False)
def checked(body: BodyDep, gateway: GatewayDep) -> WireAnswer:
    """Ends the check of an upload."""
    call = validated(wire.CheckedCall, body)
    held = _of_kind(gateway.claim(call.token), "check")
    check_facts(call.verdict, VerdictRecord, "verdict")
    taken = gateway.store.checkpoints.checked(held, cast(VerdictRecord, call.verdict), call.error)
    gateway.shared.room.ring()
    return {"taken": taken}


@router.post("/plan", include_in_schema=False)
async def plan(request: Request, gateway: GatewayDep) -> WireAnswer:
    """Writes a job's shards, where they are within the limits."""
    return await _large(request, gateway, _plan)


@router.post("/finish", include_in_schema=False)
async def finish(request: Request, gateway: GatewayDep) -> WireAnswer:
    """Records an outcome; the merge is the service's."""
    return await _large(request, gateway, _finish)


@router.post("/stopped", include_in_schema=False)
def stopped(body: BodyDep, gateway: GatewayDep) -> WireAnswer:
    """Whether the claim's job is to free its memory."""
    held = gateway.claim(validated(wire.HeldCall, body).token)
    try:
        return {"stopped": gateway.store.jobs.get(held.job_id).state in STOPPED}
    except NotFound:
        return {"stopped": True}


@router.post("/adrift", include_in_schema=False)
def adrift(body: BodyDep, gateway: GatewayDep) -> WireAnswer:
    """Whether the claim has run out, and its outcome is still taken."""
    held = gateway.claim(validated(wire.HeldCall, body).token)
    return {"adrift": gateway.store.shards.adrift(held.shard_id, held.fence)}


async def _large(request: Request, gateway: WorkerGateway, answer: Any) -> WireAnswer:
    announced = request.headers.get("content-length", "")
    small = announced.isdecimal() and int(announced[:20]) <= SMALL_OUTCOME
    with nullcontext() if small else gateway.shared.holding(gateway.pool):
        raw = await request.body()  # A slow sender keeps no other call from parsing
        async with gateway.shared.bodies:
            found: WireAnswer = await gateway.in_thread(answer, raw, gateway)
    gateway.shared.room.ring()
    return found


def _plan(raw: bytes, gateway: WorkerGateway) -> WireAnswer:
    call = _parsed(wire.PlanCall, raw)
    held, limits = _of_kind(gateway.claim(call.token), "plan"), gateway.settings.job_limits
    check_facts(call.plan, PlanWithShards, "plan")
    for one in call.requirements:
        check_facts(one, Requirements, "requirements")
    written, wanted = cast(PlanWithShards, call.plan), cast(list[Requirements], call.requirements)
    try:
        spec = cast(EvaluateJobSpec, gateway.tokens.spec(held))
    except InvalidState:  # claimed again, or written by an earlier call whose answer was lost
        return {"taken": False}
    check_plan(written, wanted, spec)
    if (excess := plan_excess(limits, written)) is not None:
        gateway.store.shards.fail(held, "over_limit", excess, retry=False)
        return {"taken": False}
    deadline = limits.deadline_seconds(written["device"], planned_seconds(written))
    bounded: PlanWithShards = {**written, "deadline_seconds": deadline}
    share = _repeat(gateway, held, spec["execution"])
    return {"taken": gateway.store.shards.finish_plan(held, bounded, wanted, repeat=share)}


def _repeat(gateway: WorkerGateway, held: Claim, execution: Execution) -> float:
    """Share of repeated shards: the job's, the service's, or a hundredth; a worker's word is none."""
    stated = execution.get("repeat", gateway.settings.repeat)
    if stated is not None:
        return stated
    others = gateway.store.workers.online(
        execution["device"], devices=execution.get("devices", 1), besides=held.worker
    )
    return REPEAT if others else 0.0


def _finish(raw: bytes, gateway: WorkerGateway) -> WireAnswer:
    call = _parsed(wire.FinishCall, raw)
    held = _of_kind(gateway.claim(call.token), "train", "evaluate")
    check_facts(call.columns, Columns, "columns")
    check_facts(call.extra, OutcomeExtra, "extra")
    if ("plan" in call.extra) != (held.kind == "train"):
        raise InvalidSpec(f"a plan belongs to a training; the claim is of a shard of kind {held.kind}")
    if "plan" in call.extra:
        check_training_plan(call.extra["plan"])
    if held.kind == "evaluate" and call.n > held.stop - held.start:
        raise InvalidSpec(f"{call.n} examples given; allowed: {held.stop - held.start}")
    if any(len(column) != call.n for column in call.columns.values()):
        raise InvalidSpec(f"the columns are not of {call.n} examples")
    row = OutcomeRow(
        evaluation=held.evaluation,
        number=held.number,
        n=call.n,
        columns=call.columns,
        seconds=call.seconds,
        forward_passes=call.forward_passes,
        backward_passes=call.backward_passes,
        extra=cast(OutcomeExtra, call.extra),
    )
    if not {"artifacts", "gallery"}.isdisjoint(row.extra) and gateway.tokens.stands(held):
        row = replace(row, extra=files.placed(gateway, held, row.extra))
    found: Finished | None = gateway.store.shards.finish(held, row)
    return {"finished": None if found is None else asdict(found)}


def _parsed(model: Any, raw: bytes) -> Any:
    try:
        BOUNDS.check(raw)
        return model.model_validate_json(raw)
    except ValueError as error:
        raise InvalidSpec(f"the body is no {model.__name__}: {str(error)[:500]}") from None


def _of_kind(held: Claim, *kinds: str) -> Claim:
    if held.kind not in kinds:
        raise InvalidSpec(f"the claim is of a shard of kind {held.kind}; allowed: {', '.join(kinds)}")
    return held
