"""Finished evaluations for leaderboards: which are read, and for whom."""

from __future__ import annotations

import pytest

from assay.service.leaderboard import store as leaderboard
from assay.service.leaderboard.store import Leaderboards
from assay.service.store.store import Store
from assay.service.store.tenants import View
from tests.service.store.conftest import *  # noqa: F403 (fixtures)
from tests.support.jobs import claim, evaluate_spec, finish_all, only, plan, planned, succeeded, train_spec

RESULT = {"name": "clean", "value": 0.25}


def seen_by(store: Store, tenant: str | None = None) -> Leaderboards:
    """What a tenant sees, or an administrator."""
    return Leaderboards(store, View(tenant, everything=tenant is None))


def measured(store: Store, tenant: str | None = None) -> str:
    """A succeeded evaluation with one result."""
    spec = evaluate_spec()
    job_id = store.jobs.add(spec, body_sha256="sha", tenant=tenant)[0].id
    assert store.shards.finish_plan(claim(store, warm_job=job_id), plan(1))
    finish_all(store, job_id)
    store.results.save(job_id, 0, RESULT)
    assert store.jobs.succeed(job_id, {"weights_sha256": "w"})
    return job_id


def test_the_newest_succeeded_evaluations_are_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    succeeded(store, store.jobs.add(train_spec(), body_sha256="sha")[0])
    ids = [measured(store) for _ in range(3)]
    planned(store, 1)
    assert seen_by(store).newest() == (ids[::-1], False)
    monkeypatch.setattr(leaderboard, "MAX_JOBS", 2)
    assert seen_by(store).newest() == (ids[:0:-1], True)


def test_jobs_are_read_with_their_results(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = measured(store)
    row = only(seen_by(store).read([job_id, "0" * 26]))
    assert (row.id, row.results, row.provenance) == (job_id, {0: RESULT}, {"weights_sha256": "w"})
    assert row.plan["data_sha256"] == {"digits": "d"}
    assert row.spec["kind"] == "evaluate"
    monkeypatch.setattr(leaderboard, "MAX_CHARACTERS", 10)
    assert seen_by(store).read([job_id]) == []


def test_a_signature_marks_a_job(store: Store) -> None:
    first, second = measured(store), measured(store)
    store.artifacts.add(first, "signature.json", "p", 1, "0" * 64, "application/json")
    store.artifacts.add(second, "results.csv", "p", 1, "0" * 64, "text/csv")
    assert seen_by(store).signed([first, second]) == {first}


def test_a_tenant_reads_its_own(store: Store) -> None:
    ours, theirs = measured(store, "ours"), measured(store, "theirs")
    for job_id in (ours, theirs):
        store.artifacts.add(job_id, "signature.json", "p", 1, "0" * 64, "application/json")
    seen = seen_by(store, "ours")
    assert seen.newest() == ([ours], False)
    assert [row.id for row in seen.read([ours, theirs])] == [ours]
    assert seen.signed([ours, theirs]) == {ours}
    everything = seen_by(store)
    assert everything.newest() == ([theirs, ours], False)
