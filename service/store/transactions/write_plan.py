"""Queueing the shards of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.records import PlannedShard, PlanWithShards
from assay.service.contract.states import JobState
from assay.service.store.clock import now
from assay.service.store.fleet.lanes import open_lane
from assay.service.store.tables import shards
from assay.service.store.transactions.deadline import lower_deadline, pause
from assay.service.store.transactions.pace import new_pace
from assay.service.store.transactions.submit import first_fence, shard_values
from assay.service.store.transactions.transitions import transition_job

OWN = ("shards", "requirements", "repeat", "stated")  # Not an evaluator's: rows apart, this module's keys.


def write_plan(
    connection: Connection,
    job: Row[Any],
    plan: PlanWithShards,
    requirements: Sequence[Requirements] = (),
    repeat: float = 0.0,
) -> None:
    """Queues the evaluate shards of a plan, pinned to its device, and sets the job running."""
    # The job, locked, keeps the plan without `shards`, which may be thousands of rows. Each evaluation has
    # `requirements` of its shards; none: workers need nothing more.
    at = float(connection.execute(select(now())).scalar_one())
    # A plan of an earlier version has none: any worker may measure it.
    identity = plan["identity"]["digest"] if "identity" in plan else ""
    lanes = [open_lane(connection, plan["device"], identity, stated) for stated in requirements]
    rows = [
        {
            **_planned(job, plan, shard, at),
            "identity": identity,
            "requirements": lanes[shard["evaluation"]] if lanes else "",
        }
        for shard in plan["shards"]
    ]
    if rows:
        connection.execute(insert(shards), rows)
    kept = {key: value for key, value in plan.items() if key not in OWN}
    if any(lanes):
        kept["requirements"] = lanes
    if repeat:
        # As text: the lanes may be gone when the last shard is done.
        kept |= {"repeat": repeat, "stated": dict(zip(lanes, requirements, strict=True))}
    if "deadline_seconds" in plan:
        lower_deadline(connection, job, plan["deadline_seconds"])
    pause(connection, job)
    transition_job(
        connection,
        job.id,
        {JobState.STARTING},
        JobState.RUNNING,
        message="",  # "planning" is over
        plan=kept,
        progress_total=sum(row["total"] for row in rows),
        cost_total=sum(row["cost"] for row in rows),
        pace=new_pace(((row["evaluation"], row["cost"]) for row in rows), plan.get("estimated_seconds")),
    )


def _planned(job: Row[Any], plan: PlanWithShards, shard: PlannedShard, at: float) -> dict[str, Any]:
    evaluation, number = shard["evaluation"], shard["number"]
    return shard_values(job.id, "evaluate", job.priority, plan["device"], job.tenant, at) | {
        "id": f"{job.id}-{evaluation}-{number}",
        "fence": first_fence(job.attempt),
        "evaluation": evaluation,
        "number": number,
        "start": shard["start"],
        "stop": shard["stop"],
        "total": shard["stop"] - shard["start"],
        "cost": float(shard["cost"]),
    }
