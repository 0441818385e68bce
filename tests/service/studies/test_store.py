"""Studies in the store, on SQLite and on PostgreSQL: whole or not at all, with the limits of jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay.service.contract.errors import (
    IdempotencyMismatch,
    InvalidSpec,
    InvalidState,
    NotFound,
    TooManyRequests,
)
from assay.service.contract.limits import Limits
from assay.service.store.audit import Actor, AuditFilter
from assay.service.store.rows import StudyRow
from assay.service.store.store import Store
from assay.service.studies.wire import OWN_TRAINING
from tests.service.store.conftest import *  # noqa: F403 (fixtures)
from tests.support.jobs import WORKER, evaluate_spec, outcome, train_spec


def template(name: str, model: str = "symvit", *, trained: bool = True) -> dict[str, Any]:
    evaluate = evaluate_spec(model=model, weights_from=OWN_TRAINING if trained else None)
    return {"name": name, "train": train_spec(model=model) if trained else None, "evaluate": evaluate}


TEMPLATES = [template("one"), template("other", "rpc_symvit")]


def spec(seeds: list[int], **changes: Any) -> dict[str, Any]:
    return {
        "name": "s",
        "tags": [],
        "seeds": seeds,
        "baseline": "one",
        "adjust": "holm",
        "metrics": None,
    } | changes


def added(store: Store, seeds: list[int] | None = None, **options: Any) -> StudyRow:
    given = {"body_sha256": "sha"} | options
    templates = given.pop("templates", TEMPLATES)
    return store.studies.add(spec(seeds or [0, 1]), templates, **given)[0]


def states(row: StudyRow) -> list[str]:
    return sorted(map(str, row.states.values()))


def work(store: Store) -> None:
    """Does every job that can be claimed, and those that are released by it."""
    while (held := store.shards.claim(WORKER, ["cpu"], lease_seconds=60)) is not None:
        if held.kind == "plan":
            shards = [{"evaluation": 0, "number": 0, "start": 0, "stop": 2, "cost": 1.0}]
            plan: Any = {"device": "cpu", "batch_size": 2, "data_sha256": {}, "evaluations": [{"n": 2}]}
            assert store.shards.finish_plan(held, {**plan, "shards": shards})
        else:
            assert store.shards.finish(held, outcome(held)) is not None
            assert store.jobs.succeed(held.job_id, {})


def test_it_is_stored_with_its_jobs_and_runs_to_its_end(store: Store) -> None:
    row = added(store)
    assert states(row) == ["queued"] * 4 + ["waiting"] * 4
    trainings = {(run.arm, run.seed): run.job_id for run in row.runs if run.role == "train"}
    for run in row.runs:
        job = store.jobs.get(run.job_id)
        assert (job.study_id, job.spec["seed"]) == (row.id, run.seed)
        if run.role == "evaluate":
            assert (job.spec["model"]["weights"] or {})["job"] == trainings[run.arm, run.seed]
    work(store)
    assert states(store.studies.get(row.id)) == ["succeeded"] * 8


def test_a_limit_leaves_nothing(store: Store) -> None:
    with pytest.raises(TooManyRequests, match="needs 8 jobs and 0 are queued, at most 7"):
        added(store, tenant="ann", limits=Limits(queued_jobs=7))
    assert store.jobs.page()[0] == []
    assert store.studies.page()[0] == []
    assert len(added(store, tenant="ann", limits=Limits(queued_jobs=8)).states) == 8
    with pytest.raises(TooManyRequests, match="8 are queued"):
        added(store, tenant="ann", limits=Limits(queued_jobs=8))
    assert len(added(store, tenant="bob", limits=Limits(queued_jobs=8)).states) == 8


def test_a_source_that_is_gone_leaves_nothing(store: Store) -> None:
    broken = template("broken", trained=False)
    broken["evaluate"]["model"]["weights"] = {"job": "1" * 26}
    with pytest.raises(InvalidSpec, match="whose weights are wanted"):
        added(store, templates=[template("one"), broken])
    assert store.jobs.page()[0] == []
    assert store.studies.page()[0] == []


def test_a_key_makes_one_study_for_all_who_post_at_once(store: Store) -> None:
    def post(_: int) -> str:
        return added(store, tenant="ann", idempotency_key="night").id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(post, range(4)))) == 1
    assert len(store.jobs.page()[0]) == 8
    with pytest.raises(IdempotencyMismatch):
        added(store, tenant="ann", idempotency_key="night", body_sha256="other")
    assert added(store, tenant="bob", idempotency_key="night").tenant == "bob"
    assert store.studies.known("night", "sha", tenant="carl") is None


def test_seeds_are_added_once_by_callers_at_once(store: Store) -> None:
    row = added(store, [0])

    def extend(_: int) -> list[str]:
        return store.studies.extend(row.id, [0, 3])[1]

    with ThreadPoolExecutor(3) as pool:
        made = sorted(map(len, pool.map(extend, range(3))))
    assert made == [0, 0, 4]
    longer = store.studies.get(row.id)
    assert (longer.spec["seeds"], len(longer.states)) == ([0, 3], 8)
    with pytest.raises(InvalidSpec, match="at most 1000"):
        store.studies.extend(row.id, list(range(10, 300)))
    assert len(store.studies.get(row.id).states) == 8


def test_a_running_job_is_canceling_until_its_worker_lets_go(store: Store) -> None:
    row = added(store)
    with pytest.raises(InvalidState, match="no job that failed"):
        store.studies.retry(row.id)
    with pytest.raises(InvalidState, match="cancel it first"):
        store.studies.delete(row.id)
    held = store.shards.claim(WORKER, ["cpu"], lease_seconds=60)
    assert held is not None
    canceled = store.studies.cancel(row.id)
    assert states(canceled) == ["canceled"] * 7 + ["canceling"]
    assert canceled.states[held.job_id] == "canceling"


def test_a_canceled_study_is_resumed_with_what_it_has(store: Store) -> None:
    row = added(store)
    held = store.shards.claim(WORKER, ["cpu"], lease_seconds=60)
    assert held is not None
    assert store.shards.finish(held, outcome(held)) is not None
    assert store.jobs.succeed(held.job_id, {})
    canceled = store.studies.cancel(row.id)
    assert states(canceled) == ["canceled"] * 7 + ["succeeded"]
    with pytest.raises(InvalidState, match="has ended"):
        store.studies.cancel(row.id)
    resumed, queued = store.studies.retry(row.id)
    assert len(queued) == 7
    assert states(resumed) == ["queued"] * 4 + ["succeeded"] + ["waiting"] * 3
    work(store)
    assert states(store.studies.get(row.id)) == ["succeeded"] * 8
    assert len(store.studies.delete(row.id)) == 8
    assert store.jobs.page()[0] == []
    with pytest.raises(NotFound):
        store.studies.get(row.id)


def test_every_change_is_audited_for_the_study_and_its_jobs(store: Store) -> None:
    by = Actor(tenant="ann")
    row = added(store, [0], tenant="ann", by=by)
    store.studies.extend(row.id, [1], by=by)
    store.studies.cancel(row.id, by=by)
    store.studies.retry(row.id, by=by)
    store.studies.cancel(row.id, by=Actor(tenant="root"))
    store.studies.delete(row.id, by=by)
    entries = store.audit.page(AuditFilter(), limit=200)[0][::-1]
    own = [entry for entry in entries if entry.action.startswith("study.")]
    assert [entry.action.removeprefix("study.") for entry in own] == [
        "submit", "extend", "cancel", "retry", "cancel", "delete"
    ]  # fmt: skip
    assert {entry.object for entry in own} == {row.id}
    assert own[0].detail == {"arms": 2, "seeds": 1, "jobs": 4}
    assert own[4].detail == {"tenant": "ann"}
    of_jobs = [entry for entry in entries if entry.action.startswith("job.")]
    assert {entry.detail["study"] for entry in of_jobs} == {row.id}
    assert len(of_jobs) == 4 + 4 + 8 + 8 + 8 + 8


def test_pages_hold_the_caller_s_studies(store: Store) -> None:
    mine = [added(store, [0], tenant="ann").id for _ in range(3)]
    other = added(store, [0], tenant="bob").id
    page, cursor = store.studies.page(limit=2, tenant="ann")
    assert [row.id for row in page] == mine[:0:-1]
    rest, end = store.studies.page(limit=2, cursor=cursor, tenant="ann")
    assert ([row.id for row in rest], end) == (mine[:1], None)
    assert [row.id for row in store.studies.page()[0]] == [other, *mine[::-1]]
    assert store.studies.belongs(other, "bob")
    assert not store.studies.belongs(other, "ann")
    with pytest.raises(NotFound):
        store.studies.get(other, tenant="ann")


def test_an_equal_training_is_stored_once(store: Store) -> None:
    row = added(store, [0, 1], templates=[template("a"), template("b"), template("c", trained=False)])
    trainings = [
        [run.job_id for run in row.runs if (run.role, run.arm) == ("train", arm)] for arm in range(3)
    ]
    assert trainings[0] == trainings[1]
    assert trainings[2] == []
    assert len(row.states) == 2 + 6
