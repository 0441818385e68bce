"""Posting a study: checked as its jobs are, compared with a registered design, planned or stored."""

from __future__ import annotations

from functools import partial
from typing import Any

from assay.service.api.deps import DispatcherDep, Submission
from assay.service.api.jobs import canonical_sha256, device_warnings, estimated_work, ring
from assay.service.api.views import device_of
from assay.service.store.tenants import TenantStore
from assay.service.studies.designs.digest import check_same, design_of, digest_of
from assay.service.studies.rows import StudyRow
from assay.service.studies.runs import training_key
from assay.service.studies.store import Studies
from assay.service.studies.submission import ValidStudy, check_study
from assay.service.studies.wire import ArmEstimate, StudyDryRun, notes_of


def checked_study(service: Submission, body: Any, design: str | None = None) -> ValidStudy:
    """A valid study; `design`: the registered design that it must be. Raises InvalidSpec; NotFound."""
    work = partial(estimated_work, service)
    valid = check_study(service.catalog, body, work=work, **service.environment)
    if design is not None:
        registered = service.store.features.of(Studies).design(design, own=True).design
        check_same(registered, design_of(valid.spec, valid.templates))
    return valid


def post_study(
    service: Submission, body: Any, idempotency_key: str | None = None, *, design: str | None = None
) -> tuple[StudyRow, bool]:
    """Stores a study with its jobs and rings the bell; whether it is new. Raises as `Studies.add`."""
    studies, sha256 = service.store.features.of(Studies), canonical_sha256(body)
    if idempotency_key is not None:
        known = studies.known(idempotency_key, sha256)
        if known is not None:
            return known, False
    valid = checked_study(service, body, design)
    row, created = studies.add(
        valid.spec,
        valid.templates,
        body_sha256=sha256,
        idempotency_key=idempotency_key,
        design=digest_of(design_of(valid.spec, valid.templates)),
    )
    if created:
        ring_jobs(service.store, service.dispatcher, [run.job_id for run in row.runs])
    return row, created


def ring_jobs(store: TenantStore, dispatcher: DispatcherDep, job_ids: list[str]) -> None:
    """Rings once for the jobs: a ring says no more than that the workers may look."""
    if job_ids:
        ring(dispatcher, job_ids[0], device_of(store.jobs.get(job_ids[0])))


def planned_study(service: Submission, valid: ValidStudy) -> StudyDryRun:
    """The jobs of a study with their estimated work, as the service would run them now."""
    seeds, keys, arms = len(valid.spec["seeds"]), set[str](), []
    seconds: list[float | None] = []
    for arm in valid.arms:
        train = arm.template["train"]
        key = training_key(train)
        shared = train is not None and key in keys
        keys |= {key} if train is not None else set()
        own = arm.train_work if train is not None and not shared else None
        works = [work for work in (own, arm.evaluate_work) if work is not None]
        seconds += [work["seconds"] for work in works]
        told = [] if train is None else device_warnings(service, train, arm.train_work or {})
        told += device_warnings(service, arm.template["evaluate"], arm.evaluate_work)
        arms.append(
            ArmEstimate(
                name=arm.template["name"],
                trained=train is not None,
                jobs=seeds * len(works),
                shared=seeds if shared else 0,
                train_seconds=arm.train_work["seconds"] if arm.train_work else None,
                evaluate_seconds=arm.evaluate_work["seconds"],
                train=arm.train_work,
                evaluate=arm.evaluate_work,
                warnings=[*arm.warnings, *{(one["code"], one["message"]): one for one in told}.values()],
            )
        )
    known = [one for one in seconds if one is not None]
    trained = [(arm.name, arm.trained) for arm in arms]
    return StudyDryRun(
        spec=valid.spec,
        jobs=sum(arm.jobs for arm in arms),
        trainings=seeds * len(keys),
        evaluations=seeds * len(arms),
        seconds=seeds * sum(known) if len(known) == len(seconds) else None,
        arms=arms,
        notes=notes_of(trained, seeds),
    )
