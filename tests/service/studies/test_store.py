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
from assay.service.store.store import Store
from assay.service.store.tenants import View
from assay.service.studies.rows import Extension, StudyRow
from assay.service.studies.store import Studies
from assay.service.studies.wire import OWN_TRAINING, StudyLook
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


def studies(store: Store, tenant: str | None = None, **caller: Any) -> Studies:
    """The studies as a tenant sees them, or a caller who sees all."""
    return Studies(store, View(tenant, everything=tenant is None), **caller)


def extended(store: Store) -> StudyRow:
    """A study with `until`."""
    until = {"width": 0.1, "max_seeds": 9, "step": 1}
    return studies(store).add(spec([0, 1], until=until), TEMPLATES, body_sha256="sha")[0]


def added(
    store: Store, seeds: list[int] | None = None, tenant: str | None = None, **options: Any
) -> StudyRow:
    caller = {name: options.pop(name) for name in ("limits", "by") if name in options}
    given = {"body_sha256": "sha"} | options
    templates = given.pop("templates", TEMPLATES)
    return studies(store, tenant, **caller).add(spec(seeds or [0, 1]), templates, **given)[0]


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
    assert states(studies(store).get(row.id)) == ["succeeded"] * 8


def test_a_limit_leaves_nothing(store: Store) -> None:
    with pytest.raises(TooManyRequests, match="needs 8 jobs and 0 are queued, at most 7"):
        added(store, tenant="ann", limits=Limits(queued_jobs=7))
    assert store.jobs.page()[0] == []
    assert studies(store).page()[0] == []
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
    assert studies(store).page()[0] == []


def test_a_key_makes_one_study_for_all_who_post_at_once(store: Store) -> None:
    def post(_: int) -> str:
        return added(store, tenant="ann", idempotency_key="night").id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(post, range(4)))) == 1
    assert len(store.jobs.page()[0]) == 8
    with pytest.raises(IdempotencyMismatch):
        added(store, tenant="ann", idempotency_key="night", body_sha256="other")
    assert added(store, tenant="bob", idempotency_key="night").tenant == "bob"
    assert studies(store, "carl").known("night", "sha") is None


def test_seeds_are_added_once_by_callers_at_once(store: Store) -> None:
    row = added(store, [0])

    def extend(_: int) -> list[str]:
        return studies(store).extend(row.id, [0, 3])[1]

    with ThreadPoolExecutor(3) as pool:
        made = sorted(map(len, pool.map(extend, range(3))))
    assert made == [0, 0, 4]
    longer = studies(store).get(row.id)
    assert (longer.spec["seeds"], len(longer.states)) == ([0, 3], 8)
    with pytest.raises(InvalidSpec, match="at most 1000"):
        studies(store).extend(row.id, list(range(10, 300)))
    assert len(studies(store).get(row.id).states) == 8


def test_a_running_job_is_canceling_until_its_worker_lets_go(store: Store) -> None:
    row = added(store)
    with pytest.raises(InvalidState, match="no job that failed"):
        studies(store).retry(row.id)
    with pytest.raises(InvalidState, match="cancel it first"):
        studies(store).delete(row.id)
    held = store.shards.claim(WORKER, ["cpu"], lease_seconds=60)
    assert held is not None
    canceled = studies(store).cancel(row.id)
    assert states(canceled) == ["canceled"] * 7 + ["canceling"]
    assert canceled.states[held.job_id] == "canceling"


def test_a_canceled_study_is_resumed_with_what_it_has(store: Store) -> None:
    row = added(store)
    held = store.shards.claim(WORKER, ["cpu"], lease_seconds=60)
    assert held is not None
    assert store.shards.finish(held, outcome(held)) is not None
    assert store.jobs.succeed(held.job_id, {})
    canceled = studies(store).cancel(row.id)
    assert states(canceled) == ["canceled"] * 7 + ["succeeded"]
    with pytest.raises(InvalidState, match="has ended"):
        studies(store).cancel(row.id)
    resumed, queued = studies(store).retry(row.id)
    assert len(queued) == 7
    assert states(resumed) == ["queued"] * 4 + ["succeeded"] + ["waiting"] * 3
    work(store)
    assert states(studies(store).get(row.id)) == ["succeeded"] * 8
    assert len(studies(store).delete(row.id)) == 8
    assert store.jobs.page()[0] == []
    with pytest.raises(NotFound):
        studies(store).get(row.id)


def test_every_change_is_audited_for_the_study_and_its_jobs(store: Store) -> None:
    by = Actor(tenant="ann")
    row = added(store, [0], tenant="ann", by=by)
    anns = studies(store, "ann", by=by)
    anns.extend(row.id, [1])
    anns.cancel(row.id)
    anns.retry(row.id)
    studies(store, by=Actor(tenant="root")).cancel(row.id)
    anns.delete(row.id)
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
    page, cursor = studies(store, "ann").page(limit=2)
    assert [row.id for row in page] == mine[:0:-1]
    rest, end = studies(store, "ann").page(limit=2, cursor=cursor)
    assert ([row.id for row in rest], end) == (mine[:1], None)
    assert [row.id for row in studies(store).page()[0]] == [other, *mine[::-1]]
    anns = studies(store, "ann")
    for call in (anns.get, lambda study: anns.extend(study, [1]), anns.cancel, anns.retry, anns.delete):
        with pytest.raises(NotFound, match=f"there is no study {other}"):
            call(other)
    assert studies(store, "bob").get(other).spec["seeds"] == [0]


def test_an_equal_training_is_stored_once(store: Store) -> None:
    row = added(store, [0, 1], templates=[template("a"), template("b"), template("c", trained=False)])
    trainings = [
        [run.job_id for run in row.runs if (run.role, run.arm) == ("train", arm)] for arm in range(3)
    ]
    assert trainings[0] == trainings[1]
    assert trainings[2] == []
    assert len(row.states) == 2 + 6


def test_a_look_is_claimed_by_one_and_its_seeds_are_added_once(store: Store) -> None:
    row = extended(store)
    assert row.extension == Extension([], "open")
    assert added(store).extension is None
    assert studies(store).claim_look() is None
    work(store)
    with ThreadPoolExecutor(4) as pool:
        claimed = [one for one in pool.map(lambda _: studies(store).claim_look(), range(4)) if one]
        assert [one.id for one in claimed] == [row.id]
        assert claimed[0].looked_for
        look = StudyLook(seeds=2, ci_low=None, ci_high=0.5)

        def conclude(_: int) -> bool:
            return studies(store).conclude(claimed[0], look, "open", seeds=[2])

        assert sorted(pool.map(conclude, range(4))) == [False, False, False, True]
    longer = studies(store).get(row.id)
    assert (longer.spec["seeds"], len(longer.states)) == ([0, 1, 2], 12)
    assert longer.extension == Extension([look], "open")
    assert studies(store).page()[0][-1].extension == longer.extension
    assert not longer.looked_for
    work(store)
    latest = studies(store).claim_look()
    assert latest is not None
    assert studies(store).conclude(latest, look, "failed", reason="why")
    assert studies(store).get(row.id).extension == Extension([look, look], "failed", "why")
    assert studies(store).retry(row.id)[1] == []
    assert studies(store).claim_look() is not None
    store.jobs.delete(latest.runs[0].job_id)
    assert not studies(store).get(row.id).looked_for
    studies(store).delete(row.id)
    assert studies(store).page()[0] != []


def test_what_a_limit_refuses_leaves_no_look(store: Store) -> None:
    row = extended(store)
    work(store)
    full = studies(store, limits=Limits(queued_jobs=3))
    look = StudyLook(seeds=2, ci_low=None, ci_high=None)
    with pytest.raises(TooManyRequests):
        full.conclude(studies(store).get(row.id), look, "open", seeds=[2])
    assert studies(store).get(row.id).extension == Extension([], "open")
