"""Leases end, fences hold, and the two caps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay.service.contract.errors import NotFound
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from tests.support.jobs import add, claim, evaluate_spec, only, outcome, plan, planned, states, train_spec

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


@pytest.mark.parametrize(
    ("fingerprints", "states"),
    [
        (("a", "a"), ["running", "failed"]),
        (("a", "b", "b"), ["running", "running", "failed"]),
        (("a", None, "a"), ["running", "running", "failed"]),
        ((None, None), ["running", "running"]),
    ],
)
def test_the_second_identical_failure_in_succession_fails_the_job(
    store: Store, fingerprints: tuple[str | None, ...], states: list[str]
) -> None:
    planned(store, 1)
    found = [
        store.shards.fail(claim(store), "evaluator_raised", "no", retry=True, fingerprint=one)
        for one in fingerprints
    ]
    assert [job.state for job in found] == states
    twice = (
        found[-1].error is not None
        and "twice in succession, so not tried again" in found[-1].error["message"]
    )
    assert twice == (len(found) > 1 and fingerprints[-1] is not None and fingerprints[-1] == fingerprints[-2])


def test_a_checkpoint_or_a_retry_forgets_the_last_failure(store: Store) -> None:
    job_id = planned(store, 1)

    def fails() -> Any:
        return store.shards.fail(claim(store), "evaluator_raised", "no", retry=True, fingerprint="a")

    fails()
    held = claim(store)
    store.shards.checkpoint(held, 1)
    again = store.shards.fail(held, "evaluator_raised", "no", retry=True, fingerprint="a")
    assert again.state == "running"
    assert fails().state == "failed"
    store.jobs.retry(job_id)
    assert fails().error is None


def test_the_third_failure_fails_the_job(store: Store) -> None:
    job_id = planned(store, 3)
    bystander = claim(store)
    for failures in (1, 2):
        job = store.shards.fail(claim(store), "out_of_memory", "no memory\nat all", retry=True)
        assert (job.state, job.error) == ("running", None)
        assert max(row.failures for row in store.shards.of(job_id)) == failures
    job = store.shards.fail(claim(store), "out_of_memory", "no memory\nat all", retry=True)
    assert (job.state, job.error) == ("failed", {"type": "out_of_memory", "message": "no memory\nat all"})
    assert job.message == "no memory at all"
    assert job.finished_at is not None
    standing = [row.state for row in store.shards.of(job_id) if row.kind == "evaluate"]
    assert standing == ["running", "failed", "canceled"]
    assert store.shards.renew(bystander, 60) == "cancel"
    # What a bystander had measured is not thrown away.
    finished = store.shards.finish(bystander, outcome(bystander))
    assert finished is not None
    assert not finished.job_done
    assert len(store.results.outcomes(job_id, 0)) == 1
    assert states(store, job_id) == ["failed"]


def test_a_failure_that_no_retry_would_help_fails_at_once(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    job = store.shards.fail(claim(store), "missing_data", "no folder", retry=False)
    assert (job.id, job.state, job.error) == (
        job_id,
        "failed",
        {"type": "missing_data", "message": "no folder"},
    )


def test_the_cap_of_losses_fails_the_job(store: Store) -> None:
    job_id = planned(store, 1)
    for losses in range(1, 20):
        held = claim(store, lease_seconds=-1)
        assert held.losses == losses - 1
        assert store.shards.expire() == 1
        assert states(store, job_id) == ["running"]
    claim(store, lease_seconds=-1)
    assert store.shards.expire() == 1
    job = store.jobs.get(job_id)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["type"] == "lost_too_often"


def test_a_retry_forgives_the_losses(store: Store) -> None:
    job_id = planned(store, 1)
    for _ in range(2):
        claim(store, lease_seconds=-1)
        assert store.shards.expire(cap=2) == 1
    assert states(store, job_id) == ["failed"]
    store.jobs.retry(job_id)
    assert {row.losses for row in store.shards.of(job_id) if row.kind == "evaluate"} == {0}
    assert claim(store, lease_seconds=-1).losses == 0
    assert store.shards.expire(cap=2) == 1
    assert states(store, job_id) == ["running"]


def test_failures_and_losses_are_counted_apart_and_a_checkpoint_forgets_both(store: Store) -> None:
    job_id = add(store, train_spec())
    for step in (1, 2, 3):
        store.shards.fail(claim(store), "boom", "no", retry=True, cap=3)
        claim(store, lease_seconds=-1)
        store.shards.expire(cap=3)
        held = claim(store)
        assert (held.failures, held.losses) == (1, 1)
        store.shards.checkpoint(held, step)
        store.shards.release(held)
    assert (only(store.shards.of(job_id)).failures, only(store.shards.of(job_id)).losses) == (0, 0)
    assert states(store, job_id) == ["queued"]


@pytest.mark.parametrize(("steps", "attempts"), [([5, 5, 5, 5], 3), ([5, 4, 3, 2], 3), (range(1, 99), 20)])
def test_a_checkpoint_before_each_failure_does_not_retry_for_ever(
    store: Store, steps: Sequence[int], attempts: int
) -> None:
    """The same step, or an earlier one, is no progress; progress forgives 19 failures."""
    job_id = add(store, train_spec())
    tried = 0
    for tried, step in enumerate(steps, 1):  # noqa: B007
        held = claim(store)
        store.shards.checkpoint(held, step)
        job = store.shards.fail(held, "boom", "no", retry=True)
        if job.error is not None:
            break
    assert (tried, job.state) == (attempts, "failed")
    assert job.error == {"type": "boom", "message": job.error["message"] if job.error else ""}
    assert ("failure 20 of this attempt" in str(job.error)) == (attempts == 20)
    store.jobs.retry(job_id)
    held = claim(store)
    store.shards.checkpoint(held, 1)
    assert store.shards.fail(held, "boom", "no", retry=True).error is None


def test_losses_are_forgiven_by_later_steps_alone(store: Store) -> None:
    """A fleet of short-lived machines may lose a training as often as it gets on."""
    job_id = add(store, train_spec())
    for step in range(1, 30):
        store.shards.checkpoint(claim(store, lease_seconds=-1), step)
        assert store.shards.expire() == 1
        assert only(store.shards.of(job_id)).losses == 1
    for losses in range(2, 20):
        store.shards.checkpoint(claim(store, lease_seconds=-1), 29)
        assert store.shards.expire() == 1
        assert only(store.shards.of(job_id)).losses == losses


def test_a_released_shard_counts_nothing_and_goes_back(store: Store) -> None:
    add(store, evaluate_spec())
    first = claim(store)
    store.shards.release(first)
    second = claim(store)
    assert (second.shard_id, second.fence) == (first.shard_id, first.fence + 1)
    assert (second.failures, second.losses) == (0, 0)
    # Once it is back, a second word about it changes nothing.
    store.shards.release(first)
    assert only(store.shards.running()).fence == second.fence


def test_reapers_that_meet_count_a_loss_once(store: Store) -> None:
    job_id = planned(store, 6)
    for _ in range(6):
        claim(store, lease_seconds=-1)
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda _: store.shards.expire(), range(6)))
    assert sum(counts) == 6
    assert {row.losses for row in store.shards.of(job_id) if row.kind == "evaluate"} == {1}
