"""Uploaded weights: names, checks, and the jobs that wait for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay.service.contract.errors import InvalidSpec, InvalidState, NotFound, TooLarge, TooManyRequests
from assay.service.contract.limits import UNLIMITED
from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.store.fleet.quotas import Quota
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import add, claim, evaluate_spec, states

MODEL = {"name": "symvit", "params": {"depth": 1}}
READY = {"layout": "timm", "classes": 10, "channels": 1}
FAULTY = {**READY, "missing": ["head.bias"]}


def upload(store: Store, name: str = "ours", **changes: Any) -> tuple[CheckpointRow, bool]:
    values: dict[str, Any] = {
        "model": MODEL,
        "sha256": "a" * 64,
        "size": 12,
        "tenant": None,
        "place": lambda _: None,
    }
    return store.checkpoints.add(name, **(values | changes))


def using(name: str = "ours", **weights: Any) -> dict[str, Any]:
    spec = evaluate_spec()
    spec["model"]["weights"] = {"checkpoint": name, **weights}
    return spec


def attacking(*named: str) -> dict[str, Any]:
    attacks = [{"name": "transfer", "params": {"job": name}, "data": None} for name in named]
    return evaluate_spec() | {"evaluations": attacks}


def check(store: Store, error: str | None = None) -> None:
    held = claim(store)
    assert held.kind == "check"
    assert store.checkpoints.checked(held, READY if error is None else FAULTY, error)


def test_a_checkpoint_is_checked_by_a_job_that_is_not_listed(store: Store) -> None:
    placed: list[str] = []
    row, queued = upload(store, place=placed.append)
    assert (row.state, queued, placed, row.verdict) == ("checking", True, [row.job_id], None)
    assert store.jobs.page() == ([], None)
    held = claim(store)
    assert (held.kind, held.shard_id, held.spec["model"]["name"]) == (
        "check",
        f"{row.job_id}-check",
        "symvit",
    )
    assert store.checkpoints.checked(held, READY, None)
    row = store.checkpoints.get("ours", tenant=None)
    assert (row.state, row.error, row.facts) == ("ready", None, {"classes": 10, "channels": 1})
    assert store.shards.claim("w", ["cpu"], lease_seconds=1) is None
    assert store.jobs.ready_to_finish() == []


def test_a_rejected_checkpoint_says_why(store: Store) -> None:
    upload(store)
    check(store, "head.bias is missing")
    row = store.checkpoints.get("ours", tenant=None)
    assert row.state == "rejected"
    assert row.error == {"type": "bad_weights", "message": "head.bias is missing"}
    assert (row.verdict, row.reason) == (FAULTY, "head.bias is missing")


def test_a_check_that_has_an_accident_is_tried_again_and_then_rejected(store: Store) -> None:
    upload(store)
    for _ in range(3):
        store.shards.fail(claim(store), "evaluator_died", "of old age", retry=True)
    row = store.checkpoints.get("ours", tenant=None)
    assert (row.state, row.reason, row.verdict) == ("rejected", "of old age", None)


def test_the_same_file_again_changes_nothing(store: Store) -> None:
    first = upload(store)[0]
    assert upload(store, place=lambda _: pytest.fail("placed twice")) == (first, False)
    check(store)
    again, queued = upload(store)
    assert (again.job_id, again.state, queued) == (first.job_id, "ready", False)


def test_the_same_file_again_has_a_rejected_one_checked_again(store: Store) -> None:
    first = upload(store)[0]
    check(store, "no")
    placed: list[str] = []
    again, queued = upload(store, place=placed.append)
    assert (again.job_id, again.state, queued, placed) == (first.job_id, "checking", True, [first.job_id])
    assert (again.error, again.verdict) == (None, None)
    check(store)
    assert store.checkpoints.get("ours", tenant=None).state == "ready"


@pytest.mark.parametrize(
    ("change", "told"),
    [({"sha256": "b" * 64}, "another content"), ({"model": {"name": "vit", "params": {}}}, "another model")],
)
def test_a_name_is_given_once(store: Store, change: dict[str, Any], told: str) -> None:
    upload(store)
    with pytest.raises(InvalidState, match=told):
        upload(store, **change)
    assert len(store.checkpoints.page(tenant=None)[0]) == 1


@ALWAYS_ON_BOTH
def test_of_uploads_at_once_one_makes_the_checkpoint(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: upload(store), range(8)))
    assert sum(queued for _, queued in made) == 1
    assert len({row.job_id for row, _ in made}) == 1


@ALWAYS_ON_BOTH
def test_of_repeated_uploads_at_once_one_has_it_checked_again(store: Store) -> None:
    upload(store)
    check(store, "no")
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: upload(store), range(8)))
    assert sum(queued for _, queued in made) == 1


def test_a_file_that_cannot_be_placed_leaves_no_checkpoint(store: Store) -> None:
    def place(job_id: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        upload(store, place=place)
    assert store.checkpoints.page(tenant=None)[0] == []
    assert store.shards.claim("w", ["cpu"], lease_seconds=1) is None


def test_tenants_have_their_own_names(store: Store) -> None:
    mine, theirs = upload(store, tenant="me")[0], upload(store, tenant="them", sha256="b" * 64)[0]
    assert mine.job_id != theirs.job_id
    assert [row.sha256 for row in store.checkpoints.page(tenant="me")[0]] == ["a" * 64]
    with pytest.raises(NotFound):
        store.checkpoints.get("ours", tenant=None)
    with pytest.raises(NotFound):
        store.checkpoints.delete("ours", tenant="others")
    with pytest.raises(InvalidSpec, match="cannot give"):
        store.jobs.add(using(), body_sha256="s", tenant="others")
    job = store.jobs.add(using(), body_sha256="s", tenant="them")[0]
    assert store.checkpoints.needed_by(job.id) == {"ours": theirs}


def test_attacks_find_the_uploads_of_their_tenant_alone(store: Store) -> None:
    mine = [upload(store, name, tenant="me")[0] for name in ("a", "b")]
    theirs = upload(store, "a", tenant="them", sha256="b" * 64)[0]

    def added(spec: dict[str, Any], tenant: str) -> str:
        view = TenantStore(store, View(tenant, everything=False), UNLIMITED, by=None)
        return view.jobs.add(spec, body_sha256="s")[0].id

    both = added(attacking("checkpoint:a", f"checkpoint:b@{'a' * 64}"), "me")
    assert states(store, both) == ["waiting"]
    assert store.checkpoints.needed_by(both) == {"a": mine[0], "b": mine[1]}
    assert store.checkpoints.needed_by(added(attacking("checkpoint:a"), "them")) == {"a": theirs}
    for spec in (attacking("checkpoint:b"), attacking(f"checkpoint:a@{'a' * 64}")):
        with pytest.raises(InvalidSpec) as caught:
            added(spec, "them")
        (detail,) = caught.value.details
        assert detail.loc == ["evaluations", 0, "params", "job"]
    with pytest.raises(InvalidState, match=f"job {both} is not finished"):
        store.checkpoints.delete("a", tenant="me")
    store.jobs.cancel(both)
    store.checkpoints.delete("a", tenant="me")
    with pytest.raises(InvalidState, match="checkpoint a or b, whose weights"):
        store.jobs.retry(both)


def test_jobs_wait_for_the_check(store: Store) -> None:
    row = upload(store)[0]
    waiting, other = add(store, using(sha256="a" * 64)), add(store, evaluate_spec())
    assert states(store, waiting, other) == ["waiting", "queued"]
    assert store.checkpoints.needed_by(waiting) == {"ours": row}
    assert store.checkpoints.needed_by(other) == {}
    check(store)
    assert states(store, waiting) == ["queued"]
    assert states(store, add(store, using())) == ["queued"]


def test_jobs_fail_with_the_check(store: Store) -> None:
    upload(store)
    waiting = add(store, using())
    check(store, "head.bias is missing")
    job = store.jobs.get(waiting)
    message = "checkpoint ours, whose weights this job needs, was rejected: head.bias is missing"
    assert (job.state, job.error) == ("failed", {"type": "dependency_failed", "message": message})
    with pytest.raises(InvalidSpec) as caught:
        add(store, using())
    (detail,) = caught.value.details
    assert (detail.loc, detail.given) == (["model", "weights", "checkpoint"], "ours")
    assert "rejected" in detail.message
    retried = store.jobs.retry(waiting)
    assert (retried.state, retried.message) == ("waiting", "waiting for checkpoint ours, which is rejected")
    upload(store)
    check(store)
    assert states(store, waiting) == ["queued"]


@pytest.mark.parametrize("spec", [using("theirs"), using(sha256="b" * 64)], ids=["name", "content"])
def test_what_is_not_there_is_refused(store: Store, spec: dict[str, Any]) -> None:
    upload(store)
    with pytest.raises(InvalidSpec, match="the checkpoint whose weights are wanted"):
        add(store, spec)


def test_a_needed_checkpoint_is_not_deleted(store: Store) -> None:
    row = upload(store)[0]
    check(store)
    job = add(store, using())
    with pytest.raises(InvalidState, match=f"job {job} is not finished and needs the checkpoint ours"):
        store.checkpoints.delete("ours", tenant=None)
    store.jobs.cancel(job)
    assert store.checkpoints.delete("ours", tenant=None) == row.job_id
    assert store.checkpoints.page(tenant=None)[0] == []
    with pytest.raises(InvalidState, match=r"checkpoint ours, whose weights job .* needs, has been deleted"):
        store.jobs.retry(job)
    assert upload(store, sha256="b" * 64)[1], "the name is free again"


def test_a_checkpoint_may_be_deleted_while_it_is_checked(store: Store) -> None:
    upload(store)
    held = claim(store)
    store.checkpoints.delete("ours", tenant=None)
    assert store.shards.renew(held, 60) == "lost"
    assert not store.checkpoints.checked(held, READY, None)


def test_a_void_claim_ends_no_check(store: Store) -> None:
    upload(store)
    lost = claim(store, lease_seconds=-1)
    assert store.shards.expire() == 1
    held = claim(store)
    assert not store.checkpoints.checked(lost, FAULTY, "late")
    assert store.checkpoints.checked(held, READY, None)
    assert not store.checkpoints.checked(held, FAULTY, "twice")
    assert store.checkpoints.get("ours", tenant=None).state == "ready"


def test_a_check_that_was_cut_off_and_finished_counts(store: Store) -> None:
    upload(store)
    cut_off = claim(store, lease_seconds=-1)
    store.shards.expire()
    assert store.checkpoints.checked(cut_off, READY, None)
    assert store.checkpoints.get("ours", tenant=None).state == "ready"


def test_a_claim_two_fences_old_does_not_take_a_queued_check_back(store: Store) -> None:
    row = upload(store)[0]
    first = claim(store, "slow", lease_seconds=-1)
    assert store.shards.expire() == 1
    store.shards.release(claim(store, "quick"))
    before = store.shards.of(row.job_id)
    assert not store.checkpoints.checked(first, FAULTY, "late")
    assert store.shards.of(row.job_id) == before
    assert store.checkpoints.get("ours", tenant=None).state == "checking"
    check(store)
    assert store.checkpoints.get("ours", tenant=None).state == "ready"


def test_the_files_of_checkpoints_never_expire(store: Store) -> None:
    row = upload(store)[0]
    check(store)
    verdict = store.artifacts.expire([row.job_id], 0.0)
    assert (verdict.expired, verdict.unknown) == (set(), set())


@pytest.mark.parametrize("act", ["get", "source", "add"])
def test_a_tenant_never_meets_the_job_behind_a_checkpoint(store: Store, act: str) -> None:
    row = upload(store, tenant="me")[0]
    check(store)
    mine = TenantStore(store, View("me", everything=False))
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: mine.jobs.get(row.job_id),
        "source": lambda: mine.jobs.source(row.job_id),
        "add": lambda: mine.jobs.add(evaluate_spec(weights_from=row.job_id), body_sha256="s"),
    }
    with pytest.raises((NotFound, InvalidSpec)):
        calls[act]()


def test_lists_come_in_pages_by_name(store: Store) -> None:
    names = ["b", "A.b", "a-1", "a", "B_"]
    for name in names:
        upload(store, name)
    upload(store, "theirs", tenant="them")
    found: list[str] = []
    cursor: str | None = None
    for _ in range(3):
        rows, cursor = store.checkpoints.page(tenant=None, limit=2, cursor=cursor)
        found += [row.name for row in rows]
    assert cursor is None
    assert found == sorted(names)
    with pytest.raises(InvalidSpec, match="the cursor is not valid"):
        store.checkpoints.page(tenant=None, cursor="Li4v")  # "../"


@ALWAYS_ON_BOTH
def test_of_uploads_at_once_no_more_are_kept_than_may_be(store: Store) -> None:
    def attempt(number: int) -> bool:
        try:
            return upload(store, f"c{number}", quota=Quota(count=3, size=100))[1]
        except InvalidState:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 3
    assert len(store.checkpoints.page(tenant=None)[0]) == 3


@ALWAYS_ON_BOTH
def test_of_uploads_at_once_no_more_bytes_are_kept_than_may_be(store: Store) -> None:
    def attempt(number: int) -> bool:
        try:
            return upload(store, f"c{number}", quota=Quota(count=100, size=30))[1]
        except TooLarge:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 2
    options: Any = {"tenant": None, "quota": Quota(100, 30), "limits": UNLIMITED, "idle_seconds": 60}
    assert store.uploads.reserve("upload", "new", 6, **options) == 6
    with pytest.raises(TooManyRequests, match="have reserved the rest"):
        store.uploads.reserve("other", "newer", 6, **options)
    store.uploads.release("upload", tenant=None)
    with pytest.raises(TooLarge, match="so 6 are left"):
        store.uploads.reserve("other", "new", 7, **options)
