"""Runs of a design that had begun before it was fixed: their numbers may have been known to its author.

A run is an arm with a seed. Equal trainings (model, data, recipe, seed and execution, on any device) are
earlier runs, and so are evaluations of given weights under an evaluation of the design, with any seed, and
the trainings that gave these weights. Other seeds and other parameters are pilots. Only jobs that the
tenant has in this service are seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, or_, select

from assay.service.contract.fractions import canonical
from assay.service.contract.times import iso
from assay.service.store.tables import jobs, study_jobs
from assay.service.studies.runs import planned_runs, training_key
from assay.service.studies.wire import ArmTemplate

MAX_TOLD = 3
BEGUN = or_(jobs.c.started_at.is_not(None), jobs.c.attempt > 1)


def earlier_runs(
    connection: Connection, tenant: str | None, templates: Sequence[ArmTemplate], seeds: Sequence[int]
) -> list[str]:
    """In words, and at most one text: the runs of these arms and seeds that the tenant's jobs had begun."""
    found = dict(
        [*_evaluated(connection, tenant, templates), *_trained(connection, tenant, templates, seeds)]
    )
    if not found:
        return []
    since = sorted((job.started_at or job.created_at, run, job.id) for run, job in found.items())
    told = [f"{run} (job {job_id}, {iso(at)})" for at, run, job_id in since]
    more = [f"and {len(told) - MAX_TOLD} more"] if len(told) > MAX_TOLD else []
    return [f"runs had begun before: {', '.join([*told[:MAX_TOLD], *more])}"]


def has_begun(connection: Connection, study_id: str) -> bool:
    """Whether a job of a study has begun, or was deleted."""
    statement = (
        select(study_jobs.c.job_id)
        .outerjoin(jobs, jobs.c.id == study_jobs.c.job_id)
        .where(study_jobs.c.study_id == study_id, or_(jobs.c.id.is_(None), BEGUN))
    )
    return connection.execute(statement.limit(1)).one_or_none() is not None


def _trained(
    connection: Connection, tenant: str | None, templates: Sequence[ArmTemplate], seeds: Sequence[int]
) -> Iterator[tuple[str, Row[Any]]]:
    wanted: dict[str, list[str]] = {}
    for run in planned_runs(templates, seeds, ""):
        if run.train is not None:
            label = f"arm {templates[run.arm]['name']!r}, seed {run.seed}"
            wanted.setdefault(_training(run.train), []).append(label)
    models = {template["train"]["model"]["name"] for template in templates if template["train"] is not None}
    seeded = or_(jobs.c.seed.is_(None), jobs.c.seed.in_(list(seeds)))
    for job in _begun(connection, tenant, "train", models, seeded):
        yield from ((label, job) for label in wanted.get(_training(job.spec), []))


def _evaluated(
    connection: Connection, tenant: str | None, templates: Sequence[ArmTemplate]
) -> Iterator[tuple[str, Row[Any]]]:
    given = {t["name"]: t["evaluate"] for t in templates if t["train"] is None}
    for job in _begun(connection, tenant, "evaluate", {spec["model"]["name"] for spec in given.values()}):
        done = _evaluations(job.spec)
        for name, spec in given.items():
            if _text(job.spec["model"]) == _text(spec["model"]) and done & _evaluations(spec):
                yield f"evaluation of the weights of arm {name!r}", job
    for name, spec in given.items():
        source = (spec["model"].get("weights") or {}).get("job")
        if source is not None:
            for job in connection.execute(select(jobs).where(jobs.c.id == source, BEGUN)):
                yield f"training of the weights of arm {name!r}", job


def _begun(
    connection: Connection, tenant: str | None, kind: str, models: set[str], *more: Any
) -> Iterator[Row[Any]]:
    found: Sequence[Any] = []
    if models:
        mine = jobs.c.tenant.is_(None) if tenant is None else jobs.c.tenant == tenant
        wanted = (mine, jobs.c.kind == kind, jobs.c.model.in_(sorted(models)), BEGUN, *more)
        shown = (jobs.c.id, jobs.c.spec, jobs.c.started_at, jobs.c.created_at)
        # The latest first: of equal runs the first that began is told.
        found = connection.execute(select(*shown).where(*wanted).order_by(jobs.c.id.desc())).all()
    yield from found


def _training(train: Mapping[str, Any]) -> str:
    execution = {name: value for name, value in train["execution"].items() if name != "device"}
    return training_key({**train, "execution": execution})


def _evaluations(spec: Mapping[str, Any]) -> set[str]:
    return {
        _text([one["name"], one["params"], one["data"] or spec["data"], spec["protocol"]])
        for one in spec["evaluations"]
    }


def _text(value: Any) -> str:
    return json.dumps(canonical(value), sort_keys=True)
