"""Tenants: what belongs to another is as if it were not there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import select

from assay.service.contract.errors import IdempotencyMismatch, InvalidSpec, InvalidState, NotFound
from assay.service.contract.limits import UNLIMITED
from assay.service.contract.verbs import VERBS
from assay.service.store.fleet.quotas import Quota
from assay.service.store.store import Store
from assay.service.store.tables import jobs
from assay.service.store.tenants import TenantJobs, TenantPart, TenantStore, View
from assay.service.submission.dependencies import dependencies_of
from tests.support.jobs import WAYS, Using, claim, evaluate_spec, finish_all, outcome, plan, train_spec

OURS = View("ours", everything=False)
THEIRS = View("theirs", everything=False)
ADMIN = View("admins", everything=True)
NO_KEYS = View(None, everything=True)
NOBODY = "0" * 26
DELETE = next(verb for verb in VERBS if verb.deletes)


def add(store: TenantStore, spec: dict[str, Any] | None = None, key: str | None = None) -> str:
    return store.jobs.add(spec or evaluate_spec(), body_sha256="a", idempotency_key=key)[0].id


@pytest.fixture
def ours(store: Store) -> TenantStore:
    return TenantStore(store, OURS)


@pytest.fixture
def theirs(store: Store) -> TenantStore:
    return TenantStore(store, THEIRS)


def calls_with_a_job(store: TenantStore) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Every method of every part that takes a job's id, with values for its other parameters."""
    others = {"name": "outcomes.npz", "evaluation": 0, "place": 0}
    others |= {"types": ("log",), "limit": 1, "key": "key", "make": lambda: (1, "made")}
    others |= {"path": "outcomes.npz", "size": 1, "sha256": "a" * 64, "media_type": "text/csv"}
    for part_name, part in vars(store).items():
        if not isinstance(part, TenantPart):
            continue
        for name, method in inspect.getmembers(part, inspect.ismethod):
            parameters = inspect.signature(method).parameters
            if not name.startswith("_") and "job_id" in parameters:
                needed = {
                    other: others[other]
                    for other, parameter in parameters.items()
                    if other not in ("verb", "job_id") and parameter.default is inspect.Parameter.empty
                }
                if "verb" in parameters:
                    for verb in VERBS:
                        yield f"{part_name}.{verb.name}", method, needed | {"verb": verb}
                else:
                    yield f"{part_name}.{name}", method, needed


def test_no_method_reaches_the_job_of_another_tenant(store: Store, ours: TenantStore) -> None:
    job_id = add(ours)
    planning = claim(store, warm_job=job_id)
    store.shards.finish_plan(planning, plan(1))
    finish_all(store, job_id)
    store.artifacts.add(job_id, "outcomes.npz", "x", 1, "s", "t")
    store.jobs.fail(job_id, "x", "x")
    before = store.jobs.get(job_id)
    found = []
    for view in (THEIRS, View("our", everything=False), View("ours ", everything=False)):
        for name, method, others in calls_with_a_job(TenantStore(store, view)):
            with pytest.raises(NotFound) as foreign:
                method(job_id=job_id, **others)
            with pytest.raises(NotFound) as missing:
                method(job_id=NOBODY, **others)
            assert str(foreign.value).replace(job_id, NOBODY) == str(missing.value), name
            found.append(name)
    assert store.jobs.get(job_id) == before
    assert {"jobs.get", "jobs.cancel", "jobs.retry", "jobs.delete", "results.of", "results.outcomes"} < set(
        found
    )
    assert {"jobs.source", "events.newest", "events.of", "artifacts.of", "artifacts.get"} < set(found)
    assert "artifacts.add" in found
    for view in (OURS, ADMIN, NO_KEYS):
        for name, method, others in calls_with_a_job(TenantStore(store, view)):
            if "verb" not in others:
                assert (method(job_id, **others) is not None) == (
                    name not in ("artifacts.add", "results.design")
                )


def test_no_method_reaches_the_job_behind_a_checkpoint(store: Store, ours: TenantStore) -> None:
    row = {"model": {"name": "vit", "params": {}}, "sha256": "a", "size": 1}
    stated = {"reading": {"normalization": None, "positions": None}, "quota": Quota(1, 1)}
    job_id = ours.checkpoints.add("mine", **row, **stated, place=lambda job_id: None)[0].job_id
    for _, method, others in calls_with_a_job(ours):
        with pytest.raises(NotFound):
            method(job_id=job_id, **others)
    for view in (ADMIN, NO_KEYS):
        for look in (TenantStore(store, view).jobs.get, TenantStore(store, view).jobs.source):
            with pytest.raises(NotFound):
                look(job_id)


NAME, SIZES = "one name", {"ours": 1, "theirs": 2, "admins": 4, None: 8}
VIEWS = {view.tenant: view for view in (OURS, THEIRS, ADMIN, NO_KEYS)}
ROOM = Quota(count=2, size=100)


def upload(store: TenantStore, tenant: str | None, name: str = NAME) -> str:
    content: dict[str, Any] = {"sha256": "a", "size": SIZES[tenant], "place": lambda _: None, "quota": ROOM}
    reading = {"normalization": None, "positions": None}
    return store.checkpoints.add(name, model={"name": "vit", "params": {}}, reading=reading, **content)[
        0
    ].job_id


def reserved(store: TenantStore, tenant: str | None) -> int:
    return store.checkpoints.reserve(f"upload of {tenant}", "other", 0, ROOM, 60, begun=False)


def released_by_others(store: TenantStore, tenant: str | None) -> bool:
    """Whether the upload of another tenant, or its own, is still there after a release by id."""
    uploads = store.checkpoints._store.uploads
    foreign = f"of another than {tenant}"
    uploads.reserve(foreign, "x", 0, tenant="fifth", quota=ROOM, limits=UNLIMITED, idle_seconds=60)
    for upload_id in (foreign, f"upload of {tenant}"):
        store.checkpoints.release(upload_id)
    left = uploads.sweep(-1)  # also within one tick of the clock of SQLite
    return left != [foreign]


# What each method of a tenant's checkpoints comes to, by what the tenant has itself.
OWN: dict[str, Callable[[TenantStore, str | None, str], bool]] = {
    "add": lambda store, tenant, job_id: upload(store, tenant) == job_id,
    "reserve": lambda store, tenant, _: reserved(store, tenant) == 100 - SIZES[tenant],
    "release": lambda store, tenant, _: not released_by_others(store, tenant),
    "get": lambda store, _, job_id: store.checkpoints.get(NAME).job_id == job_id,
    "page": lambda store, _, job_id: [row.job_id for row in store.checkpoints.page()[0]] == [job_id],
    "delete": lambda store, _, job_id: store.checkpoints.delete(NAME) == job_id,
}


@pytest.mark.parametrize("caller", SIZES)
def test_every_method_of_checkpoints_means_the_callers_own(store: Store, caller: str | None) -> None:
    methods = inspect.getmembers(TenantStore(store, OURS).checkpoints, inspect.ismethod)
    assert {name for name, _ in methods if not name.startswith("_")} == set(OWN)
    views = {tenant: TenantStore(store, view) for tenant, view in VIEWS.items()}
    ids = {tenant: upload(views[tenant], tenant) for tenant in SIZES}
    assert len(set(ids.values())) == len(SIZES), "a name is free in every tenant"
    for method, means_own in OWN.items():
        assert means_own(views[caller], caller, ids[caller]), method
    assert views[caller].checkpoints.page() == ([], None)
    for tenant in set(SIZES) - {caller}:
        assert views[tenant].checkpoints.get(NAME).job_id == ids[tenant]
        with pytest.raises(NotFound):
            views[caller].checkpoints.get(NAME)


def test_what_is_not_filtered_is_not_there(ours: TenantStore) -> None:
    filtered = {"jobs", "results", "events", "artifacts", "checkpoints", "quota"}
    # Each feature's own tests show that its store has what is the tenant's alone.
    assert set(vars(ours)) == {*filtered, "features", "workers"}
    with pytest.raises(LookupError):
        ours.features.of(TenantJobs)
    for name in ("shards", "keys", "logins"):
        with pytest.raises(AttributeError):
            getattr(ours, name)


def test_a_view_of_neither_everything_nor_a_tenant_is_refused(store: Store) -> None:
    for tenant in (None, ""):
        with pytest.raises(ValueError, match="needs a tenant"):
            TenantStore(store, View(tenant, everything=False))


def test_lists_hold_the_tenants_jobs_only(store: Store, ours: TenantStore, theirs: TenantStore) -> None:
    a, b = add(ours, evaluate_spec(tags=["t"])), add(theirs, evaluate_spec(tags=["t"]))
    c, d = add(ours, train_spec(model="vit")), add(theirs, train_spec(model="vit"))
    old = add(TenantStore(store, NO_KEYS))

    def listed(part: TenantStore, **filters: Any) -> list[str]:
        found, cursor = part.jobs.page(limit=1, **filters)
        while cursor is not None:
            rows, cursor = part.jobs.page(limit=1, cursor=cursor, **filters)
            found += rows
        return [row.id for row in found]

    assert listed(ours) == [c, a]
    assert listed(theirs) == [d, b]
    assert listed(TenantStore(store, ADMIN)) == listed(TenantStore(store, NO_KEYS)) == [old, d, c, b, a]
    for filters in ({"tag": "t"}, {"kind": "evaluate"}, {"state": "queued", "tag": "t"}):
        assert listed(ours, **filters) == [a]
    for filters in ({"kind": "train"}, {"model": "vit"}, {"model": "vit", "state": "queued"}):
        assert listed(ours, **filters) == [c]


def test_a_tag_is_added_to_jobs_that_one_sees(store: Store, ours: TenantStore, theirs: TenantStore) -> None:
    job_id = add(ours)
    with pytest.raises(NotFound):
        theirs.jobs.tag(job_id, ["paper"])
    ours.jobs.tag(job_id, ["paper"])
    with pytest.raises(NotFound):
        theirs.jobs.tag(job_id, remove=["paper"])
    assert [row.id for row in ours.jobs.page(tag="paper")[0]] == [job_id]
    assert ours.jobs.listed(group="tag").groups[0].name == "paper"
    assert theirs.jobs.listed(group="tag", sort="-worst").rows == []


def test_jobs_belong_to_whoever_adds_them(store: Store, ours: TenantStore) -> None:
    made = [add(ours), add(TenantStore(store, ADMIN)), add(TenantStore(store, NO_KEYS))]
    with store._database.reading() as connection:
        owners = {row.id: row.tenant for row in connection.execute(select(jobs.c.id, jobs.c.tenant))}
    assert [owners[job_id] for job_id in made] == ["ours", "admins", None]


def test_idempotency_keys_are_the_tenants_own(store: Store, ours: TenantStore, theirs: TenantStore) -> None:
    job_id = add(ours, key="k")
    assert theirs.jobs.known("k", "a") is None
    assert theirs.jobs.known("k", "another body") is None
    other = add(theirs, key="k")
    plain = add(TenantStore(store, NO_KEYS), key="k")
    assert len({job_id, other, plain}) == 3
    for part, made in ((ours, job_id), (theirs, other), (TenantStore(store, NO_KEYS), plain)):
        known = part.jobs.known("k", "a")
        assert known is not None
        assert known.id == made == add(part, key="k")
        with pytest.raises(IdempotencyMismatch):
            part.jobs.known("k", "b")


@WAYS
def test_weights_come_from_jobs_that_one_sees(
    store: Store, ours: TenantStore, theirs: TenantStore, using: Using
) -> None:
    training = add(ours, train_spec())
    with pytest.raises(InvalidSpec) as foreign:
        add(theirs, evaluate_spec(**using(training)))
    with pytest.raises(InvalidSpec) as missing:
        add(theirs, evaluate_spec(**using(NOBODY)))
    told = [(error.value.message, error.value.details[0].message) for error in (foreign, missing)]
    assert told[0] == told[1]
    assert foreign.value.details[0].loc == [*dependencies_of(evaluate_spec(**using(training)))[0].loc]
    assert theirs.jobs.page() == ([], None)
    assert ours.jobs.get(add(ours, evaluate_spec(**using(training)))).state == "waiting"
    assert TenantStore(store, ADMIN).jobs.get(
        add(TenantStore(store, ADMIN), evaluate_spec(**using(training)))
    )


def test_a_refused_deletion_names_no_job_of_another_tenant(store: Store, ours: TenantStore) -> None:
    training = add(ours, train_spec())
    held = claim(store, warm_job=training)
    store.shards.finish(held, outcome(held))
    store.jobs.succeed(training, {})
    needing = add(TenantStore(store, ADMIN), evaluate_spec(weights_from=training))
    with pytest.raises(InvalidState) as refused:
        ours.jobs.act(DELETE, training)
    assert needing not in str(refused.value)
