"""Choice of a worker's next shard: fair between tenants; in each the warm job, then priority, age, number."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, or_, select, update

from assay.service.contract.fleet import traces
from assay.service.contract.limits import Limits
from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.fleet.fair_queue import CLOCK_STEP, WARM_SHARDS, Lane, in_turn, lanes_of
from assay.service.store.fleet.identities import admits
from assay.service.store.fleet.lanes import read_lanes
from assay.service.store.fleet.quotas import serialize
from assay.service.store.rows import Claim
from assay.service.store.tables import RUNNING, jobs, shards
from assay.service.store.transactions.deadline import first_deadline, resume
from assay.service.store.transactions.pace import begun_pace, measured_speed
from assay.service.store.transactions.progress import UNCOUNTED
from assay.service.store.transactions.standings import Pool, lift, read_heads, read_pool, set_clock, waits_in
from assay.service.store.transactions.transitions import (
    CLAIMABLE,
    begin,
    lock_job,
    transition_job,
    transition_shards,
)

MEASURING = ("evaluate", "repeat")  # Kinds of shards by which a job is running.
# The job's own tenant, lane and precedence: the claiming index leads to its shards.
NEXT_SHARD = (
    select(shards)
    .where(shards.c.job_id == bindparam("job"), shards.c.precedence == bindparam("at"))
    .where(shards.c.tenant == bindparam("of"), shards.c.device == bindparam("device"))
    .where(shards.c.identity == bindparam("identity"))
    .where(shards.c.requirements == bindparam("requirements"))
    .where(shards.c.state == str(ShardState.QUEUED), shards.c.devices <= bindparam("count"))
    .order_by(shards.c.evaluation, shards.c.number)
    .limit(1)
)


@dataclass(frozen=True)
class Claimer:
    """A worker that asks for a shard."""

    worker: str  # its id
    devices: Sequence[str]  # its device classes
    count: int = 1  # for one shard
    warm_job: str | None = None  # the job of its loaded model
    warm_shards: int = 0  # of that job, run in a row
    without: tuple[str, ...] = ()  # unfit jobs
    identity: str = ""  # of its code; empty: it takes no planned shards
    lanes: tuple[Lane, ...] | None = None  # with requirements that it meets; None: all
    admitted: bool | None = None  # whether its identity may take work; None: to be read


@dataclass(frozen=True)
class Candidate:
    """The shard's job, lane and tenant, and what the claim changes in the books."""

    job_id: str
    lane: Lane
    tenant: str
    limits: Limits
    pool: str
    lifted: float | None
    clock: float | None
    clock_known: bool


def candidate(connection: Connection, claimer: Claimer, defaults: Limits) -> Candidate | None:
    """What this worker should get, read without locks; None without work."""
    met = read_lanes(connection) if claimer.lanes is None else claimer.lanes
    lanes = lanes_of(claimer.devices, (claimer.identity,), met)
    heads = read_heads(connection, lanes, claimer.count, claimer.without)
    if not heads:
        return None
    if not (admits(connection, claimer.identity) if claimer.admitted is None else claimer.admitted):
        return None
    pool = read_pool(connection, claimer.devices, claimer.count, defaults, heads=heads)
    turns = in_turn(pool.clock, pool.standings)
    if not turns:
        return None
    warm = _warm(connection, claimer, lanes)
    chosen = turns[0]
    if warm is not None and claimer.warm_shards < WARM_SHARDS:
        chosen = next((one for one in turns if one.tenant == warm.tenant), chosen)
    if warm is not None and warm.tenant == chosen.tenant:
        job_id, lane = warm.job_id, Lane(warm.device, warm.identity, warm.requirements)
    else:
        job_id, lane = _first(connection, pool.heads[chosen.tenant])
    return Candidate(
        job_id,
        lane,
        chosen.tenant,
        pool.limits[chosen.tenant],
        pool.name,
        chosen.lifted(pool.clock),
        *changed_clock(pool),
    )


def changed_clock(pool: Pool) -> tuple[float | None, bool]:
    """What a pool's clock is set to, None for no change; and whether it was set before."""
    if pool.stored is None:
        return pool.clock, False
    return (pool.clock if pool.clock - pool.stored >= CLOCK_STEP else None), True


def _warm(connection: Connection, claimer: Claimer, lanes: Sequence[Lane]) -> Any:
    """The warm job's tenant and lane, if it has a shard for this worker."""
    if claimer.warm_job is None or claimer.warm_job in claimer.without:
        return None
    own = (shards.c.tenant == func.coalesce(jobs.c.tenant, "")) & (shards.c.precedence == -jobs.c.priority)
    own &= (shards.c.job_id == jobs.c.id) & (shards.c.state == str(ShardState.QUEUED))
    fitting = or_(*map(waits_in, lanes)) & (shards.c.devices <= claimer.count)
    claimable = jobs.c.state.in_([str(state) for state in CLAIMABLE])
    statement = (
        select(shards.c.job_id, shards.c.tenant, shards.c.device, shards.c.identity, shards.c.requirements)
        .select_from(jobs.join(shards, own))
        .where(jobs.c.id == claimer.warm_job, claimable, fitting)
        .limit(1)
    )
    return connection.execute(statement).one_or_none()


def _first(connection: Connection, heads: dict[Lane, str]) -> tuple[str, Lane]:
    """Job and lane of the first of a tenant's jobs, one for each lane."""
    by_job = {job_id: lane for lane, job_id in heads.items()}
    if len(by_job) > 1:
        order = (
            select(jobs.c.id).where(jobs.c.id.in_(list(by_job))).order_by(jobs.c.priority.desc(), jobs.c.id)
        )
        first = connection.execute(order.limit(1)).scalar()
        if first is not None:
            return first, by_job[first]
    return next(iter(by_job.items()))


def fits(connection: Connection, found: Candidate, claimer: Claimer, seconds: float, unknown: float) -> bool:
    """Whether the job's next shard takes at most so many seconds.

    `unknown`: what a shard of unknown length (plans, trainings, checks) counts for.
    """
    statement = (
        select(shards.c.kind, shards.c.evaluation, shards.c.cost, jobs.c.pace, jobs.c.plan, jobs.c.cost_total)
        .join(jobs, jobs.c.id == shards.c.job_id)
        .where(shards.c.job_id == found.job_id, shards.c.state == str(ShardState.QUEUED))
        .where(waits_in(found.lane), shards.c.devices <= claimer.count)
        .order_by(shards.c.evaluation, shards.c.number)
        .limit(1)
    )
    shard: Any = connection.execute(statement).one_or_none()
    if shard is None or shard.kind not in MEASURING or not shard.cost_total:
        return unknown <= seconds
    speed = None if shard.pace is None else measured_speed(shard.pace, shard.evaluation)
    if speed is None:
        speed = (shard.plan or {}).get("estimated_seconds", shard.cost_total) / shard.cost_total
    return bool(shard.cost * speed <= seconds)


def take(connection: Connection, found: Candidate, claimer: Claimer, lease_seconds: float) -> Claim | None:
    """Claims the job's first queued shard; None: another worker was faster, or the job has ended."""
    # The job's row lock and not SKIP LOCKED on shards: claiming also changes the job, and locking a shard
    # before its job would deadlock with a cancel. Claimers of other jobs do not wait, except for jobs of a
    # tenant with a limit of running shards.
    begun, job = time.time_ns(), lock_job(connection, found.job_id)
    if job is None or JobState(job.state) not in CLAIMABLE:
        return None
    if found.limits.running_shards and _full(connection, found):
        return None
    place = {"job": job.id, "at": -job.priority, "of": found.tenant, "count": claimer.count}
    shard = connection.execute(NEXT_SHARD, {**place, **found.lane._asdict()}).one_or_none()
    if shard is None:
        return None
    fence = shard.fence + 1
    taken = {"owner": claimer.worker, "lease": lease_seconds, "fence": fence, "pool": found.pool}
    if not begin(connection, shard.id, taken):
        return None
    start_job(connection, job, running=shard.kind in MEASURING)
    if shard.kind not in UNCOUNTED and job.paced_at is None:
        pace: dict[str, Any] = {"paced_at": now(), "paced_from": jobs.c.cost_done}
        if job.pace is not None:
            pace["pace"] = begun_pace(job.pace)
        connection.execute(update(jobs).where(jobs.c.id == job.id).values(pace))
    if found.lifted is not None:
        lift(connection, found.tenant, found.pool, found.lifted)
    if found.clock is not None:
        set_clock(connection, found.pool, found.clock, known=found.clock_known)
    traces.record("claim", job.trace, begun, shard=shard.id, worker=claimer.worker)
    return _claim(job, shard, claimer.worker, fence)


def _full(connection: Connection, found: Candidate) -> bool:
    """Whether the tenant runs as many shards as it may; one claimer at a time counts."""
    serialize(connection, f"running shards of {found.tenant}")
    held = RUNNING & (shards.c.tenant == found.tenant)
    count = connection.execute(select(func.count()).select_from(shards).where(held)).scalar_one()
    return bool(count >= found.limits.running_shards)


def retake(connection: Connection, claim: Claim) -> bool:
    """Gives a shard back to its last claim, if it was taken away and not claimed since."""
    # For a worker that was cut off and has finished: its fence is the newest, its work would only be
    # repeated.
    job = lock_job(connection, claim.job_id)
    if job is None or JobState(job.state) not in CLAIMABLE:
        return False
    untouched = (shards.c.id == claim.shard_id) & (shards.c.fence == claim.fence)
    if not transition_shards(
        connection, untouched, {ShardState.QUEUED}, ShardState.RUNNING, owner=claim.worker, claimed_at=now()
    ):
        return False
    start_job(connection, job, running=claim.kind == "evaluate")
    return True


def start_job(connection: Connection, job: Row[Any], *, running: bool) -> None:
    """Moves a queued job to `starting` or `running`; its clock starts with its first claim."""
    times: dict[str, Any] = {}
    if job.started_at is None:
        times = {"started_at": now(), "deadline": first_deadline(job)}
    resume(connection, job)
    if job.state == JobState.QUEUED:  # its row is locked
        transition_job(connection, job.id, {JobState.QUEUED}, JobState.STARTING, **times)
    if running and job.state != JobState.RUNNING:
        transition_job(connection, job.id, {JobState.STARTING}, JobState.RUNNING)


def _claim(job: Row[Any], shard: Row[Any], worker: str, fence: int) -> Claim:
    return Claim(
        shard_id=shard.id,
        job_id=job.id,
        kind="evaluate" if shard.kind == "repeat" else shard.kind,
        attempt=job.attempt,
        fence=fence,
        worker=worker,
        spec=job.spec,
        plan=job.plan,
        evaluation=shard.evaluation,
        number=shard.number,
        start=shard.start,
        stop=shard.stop,
        failures=shard.failures,
        losses=shard.losses,
        expected_seconds=_expected_seconds(job, shard),
        requirements=shard.requirements,
        repeat=shard.kind == "repeat",
        trace=job.trace,
    )


def _expected_seconds(job: Row[Any], shard: Row[Any]) -> float:
    """The shard's part of the plan's estimate, in seconds of a nominal machine."""
    if shard.kind not in MEASURING or not job.cost_total:
        return 0.0
    estimated = (job.plan or {}).get("estimated_seconds", job.cost_total)
    return float(shard.cost * max(1.0, estimated / job.cost_total))
