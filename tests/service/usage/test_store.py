"""The ledger of device-seconds: exact over retries, losses, repetitions, new plans and deletions."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update

from assay.service.contract.errors import InvalidSpec
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.service.store.tables import shards
from assay.service.store.tenant_tables import accounts, usage
from assay.service.store.tenants import TenantStore, View
from assay.service.usage.store import PARTS, UsageLedger
from tests.service.store.conftest import *  # noqa: F403 (fixtures)
from tests.support.jobs import add, claim, evaluate_spec, outcome, plan, planned, train_spec
from tests.support.simulation import submit_many

ALL = View(None, everything=True)


def ledger(store: Store, tenant: str | None = None) -> UsageLedger:
    view = ALL if tenant is None else View(tenant, everything=False)
    return TenantStore(store, view).features.of(UsageLedger)


def age(store: Store, held: Claim, seconds: float) -> None:
    """Lets so many hundred seconds pass for a claim."""
    with store._database.writing() as connection:
        mine = update(shards).where(shards.c.id == held.shard_id)
        past = 100 * seconds
        connection.execute(
            mine.values(claimed_at=shards.c.claimed_at - past, saved_at=shards.c.saved_at - past)
        )


def lines(
    store: Store, by: Any = "job", tenant: str | None = None, **days: Any
) -> dict[str | None, list[float]]:
    """Hundreds of CPU-seconds by key: total, starts, lost, repeated, running."""
    page = ledger(store, tenant).page(by, days.get("since"), days.get("until"), 50)
    return {row.key: [round(getattr(row, f"cpu_{part}") / 100_000) for part in PARTS] for row in page.rows}


def total(store: Store, tenant: str | None = None) -> list[float]:
    row = ledger(store, tenant).page("job", None, None, 50).total
    return [round(getattr(row, f"cpu_{part}") / 100_000) for part in PARTS]


def test_each_claim_is_what_it_came_to(store: Store) -> None:
    job = planned(store, 3)
    kept, failed, lost = claim(store), claim(store), claim(store)
    for held, seconds in ((kept, 100), (failed, 20), (lost, 30)):
        age(store, held, seconds)
    assert lines(store)[job] == [150, 0, 0, 0, 150], "what runs is in the total"
    assert store.shards.finish(kept, outcome(kept, seconds=9000.0)) is not None
    store.shards.fail(failed, "RuntimeError", "x", retry=True)
    store.shards.release(lost)
    assert lines(store)[job] == [150, 10, 50, 0, 0]


def test_a_training_loses_what_no_checkpoint_kept(store: Store) -> None:
    job = add(store, train_spec())
    held = claim(store)
    age(store, held, 60)
    store.shards.checkpoint(held, 5)
    age(store, held, 15)
    store.shards.release(held)
    assert lines(store)[job] == [75, 0, 15, 0, 0]
    again = claim(store)
    age(store, again, 10)
    store.shards.release(again)
    assert lines(store)[job] == [85, 0, 25, 0, 0], (
        "a checkpoint of an earlier claim keeps nothing of this one"
    )


def test_the_outcome_of_a_worker_that_was_cut_off_is_not_lost(store: Store) -> None:
    job = planned(store, 1)
    held = claim(store)
    age(store, held, 40)
    assert store.shards.expire(dead_owners=[held.worker]) == 1
    assert lines(store)[job] == [40, 0, 40, 0, 0]
    assert store.shards.finish(held, outcome(held, seconds=3500.0)) is not None
    assert lines(store)[job] == [40, 0, 5, 0, 0]


def test_a_late_outcome_takes_only_its_own_loss_off(store: Store) -> None:
    """Whatever it says that it measured; and on the day of the loss."""
    job = planned(store, 2)
    first, other = claim(store), claim(store)
    for held in (first, other):
        age(store, held, 60)
    assert store.shards.expire(dead_owners=[first.worker]) == 2
    assert lines(store)[job] == [120, 0, 120, 0, 0]
    with store._database.writing() as connection:  # both were lost yesterday
        connection.execute(update(usage).values(day=usage.c.day - 1))
        connection.execute(update(shards).values(lost_day=shards.c.lost_day - 1))
    assert store.shards.finish(first, outcome(first, seconds=10_000.0)) is not None
    assert lines(store)[job] == [120, 0, 60, 0, 0]
    with store._database.reading() as connection:
        assert {round(row.lost / 100_000) for row in connection.execute(select(usage))} == {0, 60}


def test_a_later_claim_leaves_the_loss_of_an_earlier_one(store: Store) -> None:
    job = planned(store, 1)
    for seconds in (60, 20):
        held = claim(store)
        age(store, held, seconds)
        store.shards.release(held)
    assert store.shards.finish(held, outcome(held, seconds=9000.0)) is not None
    assert lines(store)[job] == [80, 0, 60, 0, 0]


def test_a_repeated_shard_of_a_worker_that_was_cut_off_is_repeated(store: Store) -> None:
    extra = {"extra": {"evidence": {}, "provenance": {"device": {"type": "cpu"}}}}
    job = add(store, evaluate_spec())
    assert store.shards.finish_plan(claim(store), plan(1), repeat=1.0)
    for lost in (False, True):
        held = claim(store)
        age(store, held, 30)
        if lost:
            store.shards.release(held)
        assert store.shards.finish(held, outcome(held, seconds=3000.0, **extra)) is not None
    assert lines(store)[job] == [60, 0, 0, 30, 0]


def test_a_new_plan_voids_what_was_measured(store: Store) -> None:
    job = planned(store, 2)
    held = claim(store)
    age(store, held, 50)
    assert store.shards.finish(held, outcome(held, seconds=4500.0)) is not None
    store.jobs.fail(job, "x", "x")
    store.jobs.replan(job)
    assert lines(store)[job] == [50, 5, 45, 0, 0]


def test_a_repeated_shard_stands_apart(store: Store) -> None:
    extra = {"extra": {"evidence": {}, "provenance": {"device": {"type": "cpu"}}}}
    job = add(store, evaluate_spec())
    assert store.shards.finish_plan(claim(store), plan(1), repeat=1.0)
    for seconds in (30, 20):
        held = claim(store)
        age(store, held, seconds)
        assert store.shards.finish(held, outcome(held, seconds=100.0 * seconds, **extra)) is not None
    assert lines(store)[job] == [50, 0, 0, 20, 0]


def test_devices_of_a_training_count_each(store: Store) -> None:
    spec = train_spec()
    job = add(store, {**spec, "execution": {**spec["execution"], "devices": 4}})
    held = claim(store, devices=4)
    age(store, held, 10)
    store.shards.release(held)
    assert lines(store)[job] == [40, 0, 40, 0, 0]


def test_a_deleted_job_stays_with_its_tags(store: Store) -> None:
    tagged = planned(store, 1, tags=["rpc", "paper"])
    held = claim(store)
    age(store, held, 20)
    assert store.shards.finish(held, outcome(held, seconds=2000.0)) is not None
    unused = add(store, evaluate_spec(tags=["never"]))
    before = lines(store, "tag")
    assert before == {"paper": [20, 0, 0, 0, 0], "rpc": [20, 0, 0, 0, 0]}
    for job in (tagged, unused):
        store.jobs.fail(job, "x", "x")
        store.jobs.delete(job)
    assert lines(store, "tag") == before
    assert total(store) == [20, 0, 0, 0, 0], "once, not once for each tag"
    (row,) = ledger(store).page("job", None, None, 5).rows
    assert (row.key, row.name, row.jobs) == (tagged, None, 1)


def test_what_workers_still_held_of_a_deleted_job_counts(store: Store) -> None:
    job = planned(store, 1, tags=["late"])
    with store._database.writing() as connection:
        connection.execute(usage.delete())
    held = claim(store)
    age(store, held, 25)
    store.jobs.fail(job, "x", "x")
    store.jobs.delete(job)
    assert lines(store, "tag") == {"late": [25, 0, 25, 0, 0]}


def test_a_tenant_sees_its_own_and_the_sum_is_what_it_was_charged(store: Store) -> None:
    for tenant, seconds in (("alice", 30), ("bob", 70)):
        submit_many(store, tenant, 1, "evaluate")
        held = claim(store)
        age(store, held, seconds)
        assert store.shards.finish_plan(held, plan(1))
        again = claim(store)
        age(store, again, seconds)
        store.shards.release(again)
        store.jobs.cancel(held.job_id)
    assert lines(store, "tenant") == {"bob": [140, 0, 70, 0, 0], "alice": [60, 0, 30, 0, 0]}
    assert lines(store, "tenant", "alice") == {"alice": [60, 0, 30, 0, 0]}
    assert total(store, "bob") == [140, 0, 70, 0, 0]
    assert total(store, "carol") == [0, 0, 0, 0, 0]
    with store._database.reading() as connection:
        charged = {row.tenant: row.seconds for row in connection.execute(select(accounts))}
        sums = select(usage.c.tenant, func.sum(usage.c.milliseconds)).group_by(usage.c.tenant)
        booked = {name: float(sum_) / 1000 for name, sum_ in connection.execute(sums)}
    assert booked == pytest.approx(charged, abs=0.002)


def test_days_are_both_included(store: Store) -> None:
    job = planned(store, 1)
    held = claim(store)
    age(store, held, 12)
    store.shards.release(held)
    with store._database.writing() as connection:
        connection.execute(update(usage).values(day=20_000))
    day = date(1970, 1, 1) + timedelta(days=20_000)
    assert lines(store, since=day, until=day)[job] == [12, 0, 12, 0, 0]
    assert lines(store, until=day - timedelta(days=1)) == {}
    assert lines(store, since=day + timedelta(days=1)) == {}


def test_pages_go_on_where_they_ended(store: Store) -> None:
    for seconds in (5, 50, 5, 20):
        planned(store, 1)
        held = claim(store)
        age(store, held, seconds)
        store.shards.release(held)
        store.jobs.cancel(held.job_id)
    whole = [row.key for row in ledger(store).page("job", None, None, 10).rows]
    cursor, found = None, []
    for _ in range(4):
        page = ledger(store).page("job", None, None, 1, cursor)
        found += [row.key for row in page.rows]
        cursor = page.following
    assert (found, cursor) == (whole, None)
    foreign = ledger(store).page("job", None, None, 1).following
    with pytest.raises(InvalidSpec, match="cursor"):
        ledger(store).page("tag", None, None, 1, foreign)
