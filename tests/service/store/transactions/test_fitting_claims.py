"""Workers with an end get only shards that fit into the rest of their time."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.service.store.tables import jobs
from tests.support.jobs import WORKER, add, claim, evaluate_spec, outcome, planned, train_spec


def taken(store: Store, seconds: float, unknown: float = 0.0) -> Claim | None:
    return store.shards.claim(WORKER, ["cpu"], lease_seconds=60, seconds=seconds, unknown_seconds=unknown)


def test_a_shard_of_the_plans_length_fits_or_is_left(store: Store) -> None:
    planned(store, 2)  # two shards of 2.5 s
    assert taken(store, 2.4) is None
    found = taken(store, 2.5)
    assert found is not None
    assert (found.kind, found.number) == ("evaluate", 0)


def test_the_plans_estimate_counts_where_it_is_not_the_cost(store: Store) -> None:
    job_id = planned(store, 2)
    plan = dict(store.jobs.get(job_id).plan or {}) | {"estimated_seconds": 20.0}  # 10 s each
    with store.shards._database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(plan=plan))
    assert taken(store, 9.9) is None
    assert taken(store, 10.0) is not None


@pytest.mark.parametrize(("speed", "seconds"), [(4.0, 10.0), (0.4, 1.0)])
def test_the_measured_speed_counts_more_than_the_plan(store: Store, speed: float, seconds: float) -> None:
    job_id = planned(store, 100)  # 250 of cost
    first = taken(store, 1e9)
    assert first is not None
    store.shards.finish(first, outcome(first))
    pace = {"evaluations": {"0": [250.0, 250.0, 250.0 * speed]}, "planned": None, "at": None, "before": 0.0}
    with store.shards._database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(pace=pace))
    assert taken(store, 0.95 * seconds) is None
    assert taken(store, 1.05 * seconds) is not None


def test_a_job_whose_shard_is_too_long_leaves_the_turn_to_another(store: Store) -> None:
    planned(store, 1, priority=9)
    short = add(store, evaluate_spec())
    found = taken(store, 2.0, unknown=1.0)
    assert found is not None
    assert (found.job_id, found.kind) == (short, "plan")


@pytest.mark.parametrize("spec", [evaluate_spec(), train_spec()], ids=["plan", "training"])
def test_a_shard_of_unknown_length_needs_the_length_of_a_shard(store: Store, spec: dict[str, object]) -> None:
    job_id = add(store, spec)
    assert taken(store, 119.0, unknown=120.0) is None
    found = taken(store, 120.0, unknown=120.0)
    assert found is not None
    assert found.job_id == job_id


def test_a_worker_without_an_end_takes_any(store: Store) -> None:
    job_id = planned(store, 1)
    assert claim(store).job_id == job_id
