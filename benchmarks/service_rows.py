"""Database rows for the benchmarks: jobs as after months of use, written directly, not through the store.

Of 100 jobs one is queued, a fifth of one is running, two have failed, one was canceled, the others succeeded.
Each has a plan shard and three evaluate shards, seven events and two tags. Job n is a function of n.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import insert, text

from assay.service.catalog.catalog import load
from assay.service.contract.stored_specs import UserSpec
from assay.service.store.ids import new_id
from assay.service.store.store import Store
from assay.service.store.tables import events, jobs, shards, tags
from assay.service.submission.validate import validate

MODELS = ["symvit", "rpc_symvit", "vit", "rpc_symvit_base"]
RARE_MODEL = "rare_vit"
CHUNK = 2_000
PLAN: dict[str, Any] = {
    "device": "cpu",
    "batch_size": 64,
    "data_sha256": {"digits": "x" * 64},
    "evaluations": [{"n": 300, "available": 355}] * 12,
}
PROVENANCE: dict[str, Any] = {
    "spec": {},
    "seed": 0,
    "code": {"commit": "x" * 40},
    "packages": {"torch": "2.10", "note": "x" * 500},
    "device": {"type": "cpu"},
    "weights_sha256": None,
    "data_sha256": {},
    "times": {},
}
SPACING = 30.0  # seconds between submissions


def state_of(number: int) -> str:
    """Rare states are the newest of each thousand, as in a real queue; failures are spread."""
    if number % 1000 >= 990:
        return "queued"
    if number % 1000 >= 988:
        return "running"
    return {7: "failed", 57: "failed", 33: "canceled"}.get(number % 100, "succeeded")


def add_jobs(store: Store, count: int, first: int = 0) -> list[str]:
    """Adds jobs number `first` to `first + count`, and returns their ids."""
    spec = spec_of()
    begin = time.time() - SPACING * 200_000
    ids = []
    for start in range(first, first + count, CHUNK):
        numbers = range(start, min(start + CHUNK, first + count))
        chunk = [(number, new_id(begin + SPACING * number), begin + SPACING * number) for number in numbers]
        ids += [job_id for _, job_id, _ in chunk]
        with store._database.writing() as connection:
            connection.execute(insert(jobs), [_job(n, job_id, at, spec) for n, job_id, at in chunk])
            connection.execute(insert(shards), [row for n, job_id, _ in chunk for row in _shards(n, job_id)])
            connection.execute(
                insert(events), [row for _, job_id, at in chunk for row in _events(job_id, at)]
            )
            connection.execute(insert(tags), [row for n, job_id, _ in chunk for row in _tags(n, job_id)])
    with store._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE" if connection.dialect.name == "postgresql" else "ANALYZE"))
    return ids


def spec_of() -> UserSpec:
    """The spec of all jobs."""
    body = {
        "kind": "evaluate", "name": "an evaluation", "model": {"name": "symvit"}, "data": {"name": "digits"},
        "evaluations": [{"name": "clean"}, {"name": "fgsm"}, {"name": "pgd", "params": {"epsilon": "1/255"}}],
    }  # fmt: skip
    return validate(load(), body, data_root=None, find_job=lambda job_id: None).spec


def _model(number: int) -> str:
    return RARE_MODEL if number % 500 == 250 else MODELS[number % len(MODELS)]


def _names(number: int) -> list[str]:
    return [f"sweep-{number // 200}", "nightly" if number % 10 else "release"]


def _job(number: int, job_id: str, at: float, spec: UserSpec) -> dict[str, Any]:
    state, model = state_of(number), _model(number)
    ended = state not in ("queued", "running")
    return job_of(job_id, at, spec) | {
        "kind": "train" if number % 5 == 0 else "evaluate", "model": model, "state": state,
        "spec": {**spec, "model": {**spec["model"], "name": model}, "tags": _names(number)},
        "started_at": None if state == "queued" else at + 1, "finished_at": at + 600 if ended else None,
        "provenance": PROVENANCE if ended else None, "plan": None if state == "queued" else PLAN,
        "error": {"type": "told_to", "message": "as told"} if state == "failed" else None,
        "progress_done": 900 if ended else 0,
    }  # fmt: skip


def job_of(job_id: str, at: float, spec: UserSpec) -> dict[str, Any]:
    """The row of an evaluation, submitted at a time in unix seconds."""
    return {
        "id": job_id, "name": spec["name"], "kind": "evaluate", "model": spec["model"]["name"],
        "priority": 5, "state": "queued", "attempt": 1, "created_at": at, "spec": spec,
        "started_at": None, "finished_at": None, "deadline": None, "provenance": None, "plan": None,
        "message": "", "error": None, "progress_done": 0, "progress_total": 900,
        "progress_unit": "examples", "cost_done": 1.0, "cost_total": 1.0, "last_event": 7,
        "progress_event_at": at,
    }  # fmt: skip


def _shards(number: int, job_id: str) -> list[dict[str, Any]]:
    queued = state_of(number) == "queued"
    state = "queued" if queued else "done"
    common = {
        "job_id": job_id, "device": "cpu", "precedence": -5, "state": state, "owner": None,
        "lease_until": None, "fence": 1, "failures": 0, "losses": 0, "cost": 1.0, "start": 0,
    }  # fmt: skip
    of_plan = {"kind": "plan", "evaluation": 0, "number": 0, "stop": 0, "done": 0, "total": None}
    rows = [common | of_plan | {"id": f"{job_id}-plan"}]
    for evaluation in () if queued else range(3):
        examples = {"kind": "evaluate", "number": 0, "stop": 300, "done": 300, "total": 300}
        rows.append(common | examples | {"id": f"{job_id}-{evaluation}-0", "evaluation": evaluation})
    return rows


def _events(job_id: str, at: float) -> list[dict[str, Any]]:
    data = {"done": 100, "total": 900, "unit": "examples", "eta_seconds": 10.0}
    return [{"job_id": job_id, "seq": seq, "type": "progress", "data": data, "at": at} for seq in range(1, 8)]


def _tags(number: int, job_id: str) -> list[dict[str, Any]]:
    return [{"tag": tag, "job_id": job_id} for tag in _names(number)]
