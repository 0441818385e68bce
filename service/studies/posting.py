"""Posting a study: checked as its jobs are, compared with a registered design, planned or stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from assay.service.api.deps import DispatcherDep, Submission
from assay.service.api.jobs import canonical_sha256, device_warnings, estimated_work, ring
from assay.service.api.views import device_of
from assay.service.contract.errors import ErrorDetail, InvalidSpec, InvalidState, NotFound
from assay.service.contract.stored_specs import UserSpec
from assay.service.contract.times import iso
from assay.service.store.tenants import TenantStore
from assay.service.studies.budget import ArmCost, fit, fitted_spec, least_seconds, shortens
from assay.service.studies.designs.digest import check_same, design_of, digest_of
from assay.service.studies.designs.wire import PREFIX
from assay.service.studies.rows import StudyRow
from assay.service.studies.runs import training_key
from assay.service.studies.store import Studies
from assay.service.studies.submission import ValidStudy, check_study
from assay.service.studies.wire import GUESS, ArmEstimate, StudyDryRun, notes_of
from assay.service.submission.estimate import estimate


def checked_study(service: Submission, body: Any, design: str | None = None) -> ValidStudy:
    """A valid study; `design`: the registered design that it must be. Raises InvalidSpec; NotFound."""
    work = partial(estimated_work, service)
    valid = check_study(service.catalog, body, work=work, **service.environment)
    if design is not None:
        registered = service.store.features.of(Studies).design(design, own=True).design
        check_same(registered, design_of(valid.spec, valid.templates))
    return valid


def fitted_study(
    service: Submission, valid: ValidStudy, budget: float | None
) -> tuple[ValidStudy, str | None]:
    """A valid study within seconds of computing, and in words what changed; None if nothing did.

    Raises InvalidState: an arm's time is unknown, or no job has measured it; InvalidSpec: the least study is
    over the budget.
    """
    if budget is None:
        return valid, None
    spec = valid.spec
    asked = {spec["baseline"], (spec["primary"] or {}).get("arm")}
    costs, seen = [], set[str]()
    for arm, told in zip(valid.arms, spec["arms"], strict=True):
        name, train, key = told["name"], arm.train_work, training_key(arm.template["train"])
        works = [work for work in (train, arm.evaluate_work) if work is not None]
        if any(work["seconds"] is None for work in works):
            why = "its data are counted only when a job of it is planned"
            raise InvalidState(f"a budget needs the time of every arm, and of arm {name!r} {why}")
        if not all(work["seconds_measured"] for work in works):
            hint = "`assay studies run FILE --budget` measures it first"
            raise InvalidState(f"no job has measured the speed of arm {name!r} on this device: {hint}")
        own = 0.0 if train is None or key in seen else train["seconds"]
        seen |= {key}
        kept = name in asked
        costs.append(ArmCost(name, own, arm.evaluate_work["seconds"], shortens=shortens(told), kept=kept))
    found = fit(costs, len(spec["seeds"]), budget)
    if found is None:
        message = f"the least study takes {least_seconds(costs, len(spec['seeds'])):,.0f} s of computing"
        detail = ErrorDetail(loc=["query", "budget"], message=message, given=budget)
        raise InvalidSpec(f"budget: {message}", [detail])
    changed, given_up = fitted_spec(spec, found)
    if not given_up:
        return valid, None
    text = f"changed by a budget of {budget:,g} s: {', '.join(given_up)}"
    digest = digest_of(design_of(spec, valid.templates))
    try:
        registered = service.store.features.of(Studies).design(digest, own=True)
        text = f"after registration at {iso(registered.created_at)} as {PREFIX}{digest}, {text}"
    except NotFound:
        pass
    return checked_study(service, changed), text


def post_study(
    service: Submission,
    body: Any,
    idempotency_key: str | None = None,
    *,
    design: str | None = None,
    budget: float | None = None,
) -> tuple[StudyRow, bool]:
    """Stores a study with its jobs and rings the bell; whether it is new. Raises as `Studies.add`."""
    studies = service.store.features.of(Studies)
    sha256 = canonical_sha256(body if budget is None else [body, budget])
    if idempotency_key is not None:
        known = studies.known(idempotency_key, sha256)
        if known is not None:
            return known, False
    valid, changed = fitted_study(service, checked_study(service, body, design), budget)
    row, created = studies.add(
        valid.spec,
        valid.templates,
        body_sha256=sha256,
        idempotency_key=idempotency_key,
        design=digest_of(design_of(valid.spec, valid.templates)),
        changed=changed,
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
                train_passes=None if train is None else _passes(service, train),
                evaluate_passes=_passes(service, arm.template["evaluate"]),
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
        notes=[*_extended(valid.spec), *notes_of(trained, seeds), *_guesses(arms)],
    )


def _guesses(arms: Sequence[ArmEstimate]) -> list[str]:
    works = [work for arm in arms for work in (arm.train, arm.evaluate) if work is not None]
    found = {work["seconds_from"] for work in works if work["seconds"] and not work["seconds_measured"]}
    return [f"{GUESS} {source}; large models take far longer" for source in sorted(found)]


def _passes(service: Submission, spec: UserSpec) -> tuple[int, int] | None:
    """Forward and backward passes of a job."""
    found = estimate(service.catalog, spec, service.settings.data_root, published=True)
    forward, backward = found["forward_passes"], found["backward_passes"]
    return None if forward is None or backward is None else (forward, backward)


def _extended(spec: Mapping[str, Any]) -> list[str]:
    until = spec["until"]
    if until is None:
        return []
    return [
        f"these are the first {len(spec['seeds'])} seeds; the service adds seeds until the interval of the"
        f" primary question is at most {until['width']:g} wide, up to {until['max_seeds']} seeds"
    ]
