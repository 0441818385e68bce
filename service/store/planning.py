"""The rows of a job's shards: the first one at submission, the others when the plan is made."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert

from assay.service.contract.states import JobState, ShardState
from assay.service.store.rows import ShardKind
from assay.service.store.tables import shards
from assay.service.store.transactions.transitions import move_job


def add_first_shard(connection: Connection, job_id: str, kind: ShardKind, spec: dict[str, Any]) -> None:
    """Queues the `plan` shard of an evaluation job, or the `train` shard that is all of a training job."""
    execution = spec["execution"]
    shard = _shard(job_id, kind, spec["priority"], execution["device"])
    # Only a training has several, and specs of before know of none.
    shard["devices"] = execution.get("devices", 1)
    connection.execute(insert(shards), [{**shard, "id": f"{job_id}-{kind}"}])


def write_plan(connection: Connection, job: Row[Any], plan: dict[str, Any]) -> None:
    """Queues the evaluate shards of a plan, pinned to its device, and sets the job running.

    The job keeps the plan without `shards`: they are rows now, and may be thousands.
    """
    rows = [_planned(job, plan, shard) for shard in plan["shards"]]
    if rows:
        connection.execute(insert(shards), rows)
    move_job(
        connection,
        job.id,
        {JobState.STARTING},
        JobState.RUNNING,
        plan={key: value for key, value in plan.items() if key != "shards"},
        progress_total=sum(row["total"] for row in rows),
        cost_total=sum(row["cost"] for row in rows),
    )


def _planned(job: Row[Any], plan: dict[str, Any], shard: dict[str, Any]) -> dict[str, Any]:
    evaluation, number = shard["evaluation"], shard["number"]
    return _shard(job.id, "evaluate", job.priority, plan["device"]) | {
        "id": f"{job.id}-{evaluation}-{number}",
        "evaluation": evaluation,
        "number": number,
        "start": shard["start"],
        "stop": shard["stop"],
        "total": shard["stop"] - shard["start"],
        "cost": float(shard["cost"]),
    }


def _shard(job_id: str, kind: ShardKind, priority: int, device: str) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "kind": kind,
        "evaluation": 0,
        "number": 0,
        "start": 0,
        "stop": 0,
        "device": device,
        "devices": 1,
        "precedence": -priority,
        "state": str(ShardState.QUEUED),
        "fence": 0,
        "failures": 0,
        "losses": 0,
        "done": 0,
        "total": None,
        "cost": 0.0,
    }
