"""Specs, plans and outcomes for tests of the store: whole enough to be stored, small enough to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.rows import Claim, JobRow, OutcomeRow
from assay.service.store.store import Store
from assay.workers.identity import identity

WORKER = "host:boot:1:2:0"
# The ways to need a training job: for the evaluated weights, or for the model that an attack starts from.
Using = Callable[[str], dict[str, Any]]
WAYS = pytest.mark.parametrize(
    "using",
    [lambda source: {"weights_from": source}, lambda source: {"attacks_from": [source]}],
    ids=["weights", "attack"],
)


def evaluate_spec(**changes: Any) -> dict[str, Any]:
    """A filled-in evaluation spec; `weights_from` and those of `attacks_from` name training jobs."""
    sources = changes.pop("attacks_from", ())
    attacks = [{"name": "transfer", "params": {"job": source}} for source in sources]
    return _spec("evaluate", changes) | {
        "protocol": "pixel",
        "limit": None,
        "evaluations": [{"name": "clean"}, *attacks],
    }


def train_spec(**changes: Any) -> dict[str, Any]:
    """A filled-in training spec; `weights_from` names a training job."""
    return _spec("train", changes) | {"recipe": {"name": "small_vit", "params": {}}}


def _spec(kind: str, changes: dict[str, Any]) -> dict[str, Any]:
    source = changes.pop("weights_from", None)
    device = changes.pop("device", "auto")
    model = changes.pop("model", "symvit")
    return {
        "kind": kind,
        "name": "",
        "seed": 0,
        "tags": [],
        "priority": 5,
        "timeout_seconds": None,
        "model": {"name": model, "params": {}, "weights": {"job": source} if source else None},
        "data": {"name": "digits", "params": {}},
        "execution": {"device": device, "dtype": "float32", "batch_size": "auto"},
        **changes,
    }


def add(store: Store, spec: dict[str, Any]) -> str:
    """Adds a job and returns its id."""
    return store.jobs.add(spec, body_sha256="sha")[0].id


def claim(store: Store, worker: str = WORKER, **options: Any) -> Claim:
    """Claims a shard that must exist, also one that this code has planned."""
    options.setdefault("identity", identity()["digest"])
    found = store.shards.claim(
        worker, ["cpu", CHECKS], lease_seconds=options.pop("lease_seconds", 60), **options
    )
    assert found is not None, "nothing to claim"
    return found


def plan(*evaluations: int, size: int = 10, device: str = "cpu", planned_by: str = "") -> dict[str, Any]:
    """A plan with this many shards of `size` examples per evaluation, by a worker of this identity."""
    shards = [
        {"evaluation": e, "number": i, "start": i * size, "stop": (i + 1) * size, "cost": 2.5}
        for e, count in enumerate(evaluations)
        for i in range(count)
    ]
    sizes = [{"n": count * size} for count in evaluations]
    planner = {"digest": planned_by, "source_sha256": "s", "packages": {}, "catalog": "c"}
    return {
        **({"identity": planner} if planned_by else {}),
        "device": device,
        "batch_size": 5,
        "data_sha256": {"digits": "d"},
        "evaluations": sizes,
        "shards": shards,
    }


def planned(store: Store, *evaluations: int, planned_by: str = "", **changes: Any) -> str:
    """Adds an evaluation job and finishes its plan; the worker's next claims are its evaluate shards."""
    job_id = add(store, evaluate_spec(**changes))
    planning = claim(store, warm_job=job_id)
    assert planning.job_id == job_id
    assert store.shards.finish_plan(planning, plan(*evaluations, planned_by=planned_by))
    return job_id


def outcome(claim: Claim, **changes: Any) -> OutcomeRow:
    """An outcome of the right size for a claim."""
    n = claim.stop - claim.start
    columns = {
        "id": [f"{position:05d}" for position in range(claim.start, claim.stop)],
        "loss": [0.1 * position for position in range(n)],
    }
    values = {"seconds": 1.5, "forward_passes": 10 * n, "backward_passes": 9 * n, "extra": {}, **changes}
    return OutcomeRow(evaluation=claim.evaluation, number=claim.number, n=n, columns=columns, **values)


def finish_all(store: Store, job_id: str, **options: Any) -> None:
    """Claims and finishes every shard that the job has left."""
    options = {"lease_seconds": 60, "warm_job": job_id, **options}
    while (found := store.shards.claim(WORKER, ["cpu"], **options)) is not None:
        assert found.job_id == job_id
        assert store.shards.finish(found, outcome(found)) is not None


def states(store: Store, *job_ids: str) -> list[str]:
    """The states of these jobs."""
    return [str(store.jobs.get(job_id).state) for job_id in job_ids]


def only(rows: list[Any]) -> Any:
    """The single element of a list."""
    assert len(rows) == 1
    return rows[0]


def succeeded(store: Store, job: JobRow) -> None:
    """Carries a training job to its end."""
    held = claim(store, warm_job=job.id)
    assert held.job_id == job.id
    assert store.shards.finish(held, outcome(held)) is not None
    assert store.jobs.succeed(job.id, {})


def told(store: Store, job_id: str, kind: str) -> list[dict[str, Any]]:
    """What the events of one kind say, in their order."""
    return [row.data for row in store.events.of(job_id) if row.type == kind]
