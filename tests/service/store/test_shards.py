"""Leases end, fences hold, and the two caps."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from assay.service.contract.errors import NotFound
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from tests.support.jobs import add, claim, evaluate_spec, only, outcome, plan, planned, states

WRITES: dict[str, Callable[[Store, Claim], object]] = {
    "finish": lambda store, held: store.shards.finish(held, outcome(held)),
    "fail": lambda store, held: store.shards.fail(held, "boom", "no", retry=False),
    "progress": lambda store, held: store.shards.progress(held, 7, 10, "stale"),
    "checkpoint": lambda store, held: store.shards.checkpoint(held, 1),
    "canceled": lambda store, held: store.shards.canceled(held),
    "release": lambda store, held: store.shards.release(held),
    "renew": lambda store, held: store.shards.renew(held, 600),
}


@pytest.mark.parametrize(
    ("write", "again"),
    # But `finish` of a shard that was only queued again: the test below.
    [(write, again) for write in WRITES for again in (True, False) if again or write != "finish"],
)
def test_a_stale_claim_writes_nothing(store: Store, write: str, again: bool) -> None:
    job_id = planned(store, 2)
    stale = claim(store, "slow", lease_seconds=-1)
    assert store.shards.expire() == 1
    if again:
        assert claim(store, "quick").shard_id == stale.shard_id
    before = (store.jobs.get(job_id), store.shards.of(job_id))
    answer = WRITES[write](store, stale)
    assert (store.jobs.get(job_id), store.shards.of(job_id)) == before
    assert store.results.outcomes(job_id, None) == []
    assert answer == {"renew": "lost", "fail": before[0]}.get(write)


def test_a_claim_two_fences_old_does_not_take_a_queued_shard_back(store: Store) -> None:
    """Back in `running` without a lease, no worker could claim it and no lease would ever end."""
    job_id = planned(store, 1)
    first = claim(store, "slow", lease_seconds=-1)
    assert store.shards.expire() == 1
    store.shards.release(claim(store, "quick"))
    before = store.shards.of(job_id)
    assert store.shards.finish(first, outcome(first)) is None
    assert store.shards.of(job_id) == before
    third = claim(store)
    assert (third.shard_id, third.fence) == (first.shard_id, first.fence + 2)


def test_a_stale_claim_does_not_count_what_another_finished_as_its_own(store: Store) -> None:
    job_id = planned(store, 1)
    slow = claim(store, "slow", lease_seconds=-1)
    assert store.shards.expire() == 1
    quick = claim(store, "quick")
    finished = store.shards.finish(quick, outcome(quick))
    assert finished is not None
    assert finished.job_done
    assert store.shards.finish(slow, outcome(slow)) is None
    assert len(store.results.outcomes(job_id, None)) == 1


def test_an_outcome_counts_until_somebody_else_claims_the_shard(store: Store) -> None:
    """Its fence is still the newest: measuring again would give the same numbers."""
    job_id = planned(store, 2)
    late = claim(store, "slow", lease_seconds=-1)
    assert store.shards.expire() == 1
    finished = store.shards.finish(late, outcome(late))
    assert finished is not None
    assert not finished.evaluation_done
    (row,) = store.results.outcomes(job_id, None)
    assert row == outcome(late)
    assert sorted(str(s.state) for s in store.shards.of(job_id)) == ["done", "done", "queued"]
    assert store.jobs.get(job_id).progress_done == 10
    assert store.shards.finish(late, outcome(late)) == finished, "whose answer was lost asks again"
    assert len(store.results.outcomes(job_id, None)) == 1, "it counts once"
    assert store.jobs.get(job_id).progress_done == 10


def test_a_stale_plan_is_refused_and_the_new_one_holds(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    stale = claim(store, lease_seconds=-1)
    store.shards.expire()
    assert states(store, job_id) == ["queued"]
    current = claim(store)
    assert not store.shards.finish_plan(stale, plan(7))
    assert store.shards.finish_plan(current, plan(3))
    assert not store.shards.finish_plan(current, plan(3))
    assert len(store.shards.of(job_id)) == 1 + 3


def test_a_claim_of_a_deleted_job_is_lost(store: Store) -> None:
    job_id = planned(store, 1)
    held = claim(store)
    store.jobs.fail(job_id, "boom", "no")
    store.jobs.delete(job_id)
    assert store.shards.renew(held, 60) == "lost"
    assert store.shards.finish(held, outcome(held)) is None
    with pytest.raises(NotFound):
        store.shards.fail(held, "boom", "no", retry=True)


def test_a_lease_holds_until_it_ends_and_renewing_extends_it(store: Store) -> None:
    planned(store, 2)
    kept, given_up = claim(store, lease_seconds=0.05), claim(store, lease_seconds=0.05)
    assert store.shards.renew(kept, 60) == "run"
    time.sleep(0.1)
    assert store.shards.expire() == 1
    assert only(store.shards.running()).id == kept.shard_id
    assert store.shards.expire() == 0
    # A slow worker keeps its shard until it is reclaimed.
    again = claim(store, lease_seconds=-1)
    assert (again.shard_id, again.fence, again.losses) == (given_up.shard_id, 2, 1)
    assert store.shards.renew(again, 60) == "run"
    assert store.shards.expire() == 0


def test_owners_that_are_dead_lose_their_shards_at_once(store: Store) -> None:
    planned(store, 2)
    claim(store, "dead"), claim(store, "alive")
    assert store.shards.expire(dead_owners=["dead", "unheard of"]) == 1
    assert only(store.shards.running()).owner == "alive"
