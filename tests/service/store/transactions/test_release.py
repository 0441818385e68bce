"""Failures and losses of shards: what is counted, what is forgiven, and the caps that fail a job."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay.service.store.store import Store
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import add, claim, evaluate_spec, only, outcome, planned, states, train_spec


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


@ALWAYS_ON_BOTH
def test_reapers_that_meet_count_a_loss_once(store: Store) -> None:
    job_id = planned(store, 6)
    for _ in range(6):
        claim(store, lease_seconds=-1)
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda _: store.shards.expire(), range(6)))
    assert sum(counts) == 6
    assert {row.losses for row in store.shards.of(job_id) if row.kind == "evaluate"} == {1}
