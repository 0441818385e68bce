"""Proof by repetition: shards that are computed a second time, and the comparison of their bits.

Shards are drawn when all of a job are done, so no worker knows before which numbers are looked at. A
repetition is a shard of kind "repeat"; its rows are compared with the first, and not kept.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.records import Columns, OutcomeExtra, Plan
from assay.service.contract.states import JobState
from assay.service.store.clock import now
from assay.service.store.columns import pack, unpack
from assay.service.store.database import Database
from assay.service.store.fleet.lanes import lacking, open_lane
from assay.service.store.rows import OutcomeRow
from assay.service.store.tables import QUEUED, jobs, lanes, outcomes, shards, workers
from assay.service.store.transactions.event_log import record_message
from assay.service.store.transactions.release import DIFFERENT, fail, not_compared, requeue
from assay.service.store.transactions.submit import first_fence, shard_values
from assay.service.store.transactions.transitions import CLAIMABLE, complete, lock_job

REPEAT = 0.01  # Share of repeated shards where none is stated, and another worker is there
SUFFIX = "-again"
DRAW = random.SystemRandom()


def draw(connection: Connection, job: Row[Any]) -> bool:
    """Queues repetitions of a job with all shards done; False where it gets none, or has had them."""
    # A job's own share gives at least one; the service's share is right on average: most jobs with a single
    # shard get none. Measurements of the machine are not repeated.
    plan: Plan | None = job.plan
    share = 0.0 if plan is None else plan.get("repeat", 0.0)
    if plan is None or share == 0 or job.repeated is not None:
        return False
    measured = (
        select(shards, outcomes.c.worker)
        .join(outcomes, outcomes.c.shard_id == shards.c.id)
        .where(shards.c.job_id == job.id)
        .order_by(shards.c.id)
    )
    rows = connection.execute(measured).all()
    found = [row for row in rows if "repeats" not in plan["evaluations"][row.evaluation]]
    wanted = share * len(found)
    asked = job.spec["execution"].get("repeat") is not None
    count = math.ceil(wanted) if asked else math.floor(wanted + DRAW.random())
    if count == 0:
        return False
    online = {name for name, _ in lacking(connection, plan["device"], identity=found[0].identity)}
    at = float(connection.execute(select(now())).scalar_one())
    repetitions = [
        shard_values(job.id, "repeat", job.priority, shard.device, job.tenant, at)
        | {name: getattr(shard, name) for name in ("evaluation", "number", "start", "stop", "total", "cost")}
        | {"id": f"{shard.id}{SUFFIX}", "fence": first_fence(job.attempt), "identity": shard.identity}
        | {"requirements": _lane(connection, plan, shard, besides=online - {shard.worker} and shard.worker)}
        for shard in DRAW.sample(found, count)
    ]
    connection.execute(insert(shards), repetitions)
    _note(connection, job, {"shards": count, "equal": 0, "other_workers": 0, "not_compared": {}})
    record_message(connection, job.id, f"{count} of {len(rows)} shards are computed again, to compare bits")
    return True


def _lane(connection: Connection, plan: Plan, shard: Row[Any], besides: object = None) -> str:
    """The requirements of a repetition: its shard's, and another worker than `besides`."""
    digests = plan.get("requirements")
    stated: Requirements = {} if digests is None else plan["stated"][digests[shard.evaluation]]
    if besides:
        stated = {**stated, "besides": str(besides)}
    return open_lane(connection, shard.device, shard.identity, stated)


def compare(connection: Connection, job: Row[Any], shard: Row[Any], outcome: OutcomeRow) -> None:
    """Completes a repetition with the first outcome's bits; with others its job fails."""
    first = connection.execute(
        select(outcomes).where(outcomes.c.shard_id == shard.id.removesuffix(SUFFIX))
    ).one()
    columns, extra = unpack(first.payload)
    again = unpack(pack(outcome.columns, outcome.extra))[0]
    worker = connection.execute(select(known_as(shard.owner))).scalar_one()
    if (reason := _incomparable(extra, outcome.extra, job.spec["execution"])) is not None:
        not_compared(connection, job, reason, 1)
    elif (place := _first_difference(columns, again)) is not None:
        message = (
            f"shard {shard.number} of evaluation {shard.evaluation} has other numbers where it was computed"
            f" again: {place}; {_told(first.worker, worker)}, then plan the job again (assay replan)"
        )
        if JobState(job.state) in CLAIMABLE:
            fail(connection, job, shard, DIFFERENT, message)
        else:
            requeue(connection, job, shard)
        return
    else:
        equal, others = job.repeated["equal"] + 1, job.repeated["other_workers"] + (worker != first.worker)
        _note(connection, job, {**job.repeated, "equal": equal, "other_workers": others})
    complete(connection, shard)


def _told(first: str | None, again: str) -> str:
    if first == again:
        said = (
            f"worker {again} has given both: its device is defective, or the job's code is not deterministic"
        )
        return f"{said}. Look at both"
    said = f"it was measured by worker {first}, and again by worker {again}. Either is wrong, or"
    return f"{said} the job's code is not deterministic: look at all three"


def known_as(owner: str | ColumnElement[str]) -> ColumnElement[str]:
    """A worker's name by its id, as administrators know it; without a heartbeat its id."""
    named = select(workers.c.name).where(workers.c.worker == owner, workers.c.name != "").scalar_subquery()
    return func.coalesce(named, owner)


def _incomparable(first: OutcomeExtra, again: OutcomeExtra, execution: Mapping[str, Any]) -> str | None:
    """Why two outcomes of a shard may rightly differ in their bits, by what the job asked for."""
    if first["provenance"]["device"] != again["provenance"]["device"]:
        return "on another device, or with other arithmetic"
    if "reduced_batch" in first["evidence"] or "reduced_batch" in again["evidence"]:
        return "in smaller batches, as memory was short"
    captured, compiled = (
        [_prepared(extra["evidence"].get(kind)) for extra in (first, again)]
        for kind in ("captured", "compiled")
    )
    if execution.get("capture") and captured[0] != captured[1]:
        return "with captured passes in one of them"
    if execution.get("compile") and compiled[0] != compiled[1]:
        return "with compiled passes in one of them, or from another compiler"
    return None


def _prepared(found: Any) -> tuple[bool, bool, str | None]:
    """Whether captured or compiled passes served, whether to the end, and their compiler."""
    if not found or not found.get("passes", found.get("replays")):
        return False, False, None
    return True, found["refused"] is None, found.get("compiler")


def _first_difference(first: Columns, again: Columns) -> str | None:
    """Where two outcomes differ first: by row, then by column."""
    if first.keys() != again.keys():
        return f"column {min(first.keys() ^ again.keys())!r} is there only once"
    if any(len(first[name]) != len(again[name]) for name in first):
        name = next(name for name in sorted(first) if len(first[name]) != len(again[name]))
        return f"column {name!r} has {len(first[name])} and {len(again[name])} rows"
    # As text: NaN equals itself, and 0.0 is not -0.0.
    differing = [name for name in sorted(first) if json.dumps(first[name]) != json.dumps(again[name])]
    found = [
        (row, name, one, other)
        for name in differing
        for row, (one, other) in enumerate(zip(first[name], again[name], strict=True))
        if json.dumps(one) != json.dumps(other)
    ]
    if not found:
        return None
    row, name, one, other = min(found, key=lambda place: place[:2])
    return f"row {row} (example {first['id'][row]}), column {name!r}: {one} and {other}"


def free_waiting(database: Database, seconds: float) -> None:
    """Lets any fit worker take repetitions that wait in vain for another worker."""
    # After so many seconds also where another is online; they are given up where no worker is.
    of_lane = (lanes.c.requirements == shards.c.requirements) & (lanes.c.device == shards.c.device)
    of_lane &= lanes.c.identity == shards.c.identity
    late = (shards.c.queued_at < now() - seconds).label("late")
    waiting = (
        select(shards.c.id, shards.c.job_id, shards.c.device, shards.c.identity, late, lanes.c.stated)
        .select_from(shards.outerjoin(lanes, of_lane))
        .where(QUEUED, shards.c.kind == "repeat")
        .order_by(shards.c.job_id)
    )
    with database.reading() as connection:
        rows = connection.execute(waiting).all()
        online = {
            (device, identity): {name for name, _ in lacking(connection, device, identity=identity)}
            for device, identity in {(row.device, row.identity) for row in rows}
        }
    for row in rows:
        here, besides = online[row.device, row.identity], (row.stated or {}).get("besides")
        if here and besides is not None and (row.late or not here - {besides}):
            _change(database, row.job_id, row.id, lift=True)
        elif row.late and not here:
            _change(database, row.job_id, row.id, lift=False)


def _change(database: Database, job_id: str, shard_id: str, *, lift: bool) -> None:
    """Lifts a queued repetition's requirement of its worker, or gives the repetition up."""
    this = QUEUED & (shards.c.id == shard_id)
    with database.writing() as connection:
        job = lock_job(connection, job_id)
        shard = connection.execute(select(shards).where(this)).one_or_none()
        if job is None or shard is None:
            return
        if lift:
            values = {"requirements": _lane(connection, job.plan, shard), "queued_at": now()}
            connection.execute(update(shards).where(this).values(values))
        else:
            not_compared(connection, job, "no worker was there to compute them", 1)
            connection.execute(delete(shards).where(this))


def _note(connection: Connection, job: Row[Any], repeated: dict[str, Any]) -> None:
    connection.execute(update(jobs).where(jobs.c.id == job.id).values(repeated=repeated))
