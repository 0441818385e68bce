"""Plans are written once, shards count once, and the last one is reported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from assay.service.store.rows import Finished
from assay.service.store.store import Store
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import (
    add,
    claim,
    evaluate_spec,
    finish_all,
    only,
    outcome,
    plan,
    planned,
    states,
    train_spec,
)


def test_the_last_shard_of_an_evaluation_and_of_the_job_say_so(store: Store) -> None:
    job_id = planned(store, 2, 1)
    held = [claim(store) for _ in range(3)]
    answers = [store.shards.finish(held[i], outcome(held[i])) for i in (1, 2, 0)]
    assert answers == [
        Finished(evaluation_done=False, job_done=False),
        Finished(evaluation_done=True, job_done=False),
        Finished(evaluation_done=True, job_done=True),
    ]
    # The job itself ends when its results are merged.
    assert states(store, job_id) == ["running"]


@ALWAYS_ON_BOTH
def test_a_plan_that_two_supervisors_finish_at_once_is_written_once(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    held = claim(store)
    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(lambda _: store.shards.finish_plan(held, plan(5, 5)), range(4)))
    assert sorted(written) == [False, False, False, True]
    assert len(store.shards.of(job_id)) == 1 + 10
    job = store.jobs.get(job_id)
    assert (job.state, job.progress_total, job.cost_total) == ("running", 100, 25.0)


@ALWAYS_ON_BOTH
def test_a_finish_that_arrives_many_times_counts_once(store: Store) -> None:
    job_id = planned(store, 1)
    held = claim(store)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: store.shards.finish(held, outcome(held)), range(6)))
    assert answers == [Finished(evaluation_done=True, job_done=True)] * 6, "whose answer was lost asks again"
    assert len(store.results.outcomes(job_id, None)) == 1
    assert store.jobs.get(job_id).progress_done == 10


def test_a_finish_that_is_repeated_after_the_merge_asks_for_nothing(store: Store) -> None:
    job_id = planned(store, 1)
    held = claim(store)
    store.shards.finish(held, outcome(held))
    assert store.jobs.succeed(job_id, {})
    again = store.shards.finish(held, outcome(held))
    assert again == Finished(evaluation_done=False, job_done=False)
    assert len(store.results.outcomes(job_id, None)) == 1


@ALWAYS_ON_BOTH
def test_of_many_shards_that_finish_at_once_one_is_the_last(store: Store) -> None:
    planned(store, 8, 4)
    held = [claim(store) for _ in range(12)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda one: store.shards.finish(one, outcome(one)), held))
    assert sum(answer is not None and answer.evaluation_done for answer in answers) == 2
    assert sum(answer is not None and answer.job_done for answer in answers) == 1


def test_an_outcome_and_its_count_are_written_together_or_not_at_all(store: Store) -> None:
    job_id = planned(store, 1)
    held = claim(store)
    with pytest.raises(TypeError):
        store.shards.finish(held, outcome(held, extra={"no": object()}))
    assert store.results.outcomes(job_id, None) == []
    assert only(store.shards.running()).id == held.shard_id
    assert store.shards.finish(held, outcome(held)) is not None


def test_a_job_with_all_shards_done_is_ready_until_it_has_succeeded(store: Store) -> None:
    job_id, other = planned(store, 2), planned(store, 2)
    assert store.jobs.ready_to_finish() == []
    assert not store.jobs.succeed(job_id, {"seed": 0})
    first, second = claim(store, warm_job=job_id), claim(store, warm_job=job_id)
    store.shards.finish(first, outcome(first))
    assert store.jobs.ready_to_finish() == []
    store.shards.finish(second, outcome(second))
    assert store.jobs.ready_to_finish() == [job_id]
    assert store.jobs.succeed(job_id, {"seed": 0})
    assert not store.jobs.succeed(job_id, {"seed": 1})
    assert store.jobs.ready_to_finish() == []
    job = store.jobs.get(job_id)
    assert (job.state, job.provenance, job.error) == ("succeeded", {"seed": 0}, None)
    assert job.finished_at is not None
    assert states(store, other) == ["running"]


@ALWAYS_ON_BOTH
def test_succeeding_many_times_at_once_happens_once(store: Store) -> None:
    job_id = planned(store, 1)
    finish_all(store, job_id)
    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(lambda i: store.jobs.succeed(job_id, {"i": i}), range(6))) == [False] * 5 + [
            True
        ]


def test_an_evaluation_without_examples_is_ready_at_once(store: Store) -> None:
    job_id = planned(store)
    assert store.jobs.ready_to_finish() == [job_id]
    assert store.jobs.succeed(job_id, {})


def test_the_progress_of_an_evaluation_is_the_sum_over_its_shards(store: Store) -> None:
    job_id = planned(store, 2, 1)
    first, second = claim(store), claim(store)

    def progress() -> tuple[int, int | None, str, float, float | None]:
        job = store.jobs.get(job_id)
        return job.progress_done, job.progress_total, job.progress_unit, job.cost_done, job.cost_total

    assert progress() == (0, 30, "examples", 0.0, 7.5)
    store.shards.progress(first, 4, 10, "pgd\n4 of 10")
    store.shards.progress(second, 2, None)
    assert progress() == (6, 30, "examples", 1.5, 7.5)
    assert store.jobs.get(job_id).message == "pgd 4 of 10"
    # More than there is cannot be done, and what is lost is done no more.
    store.shards.progress(second, 99, 99)
    assert progress()[0] == 14
    store.shards.release(second)
    assert progress() == (4, 30, "examples", 1.0, 7.5)
    store.shards.finish(first, outcome(first))
    assert progress() == (10, 30, "examples", 2.5, 7.5)
    finish_all(store, job_id)
    store.jobs.succeed(job_id, {})
    assert progress() == (30, 30, "examples", 7.5, 7.5)


def test_the_progress_of_a_training_goes_on_from_its_checkpoint(store: Store) -> None:
    job_id = add(store, train_spec())
    held = claim(store)
    assert states(store, job_id) == ["starting"]
    store.shards.progress(held, 50, 200, "epoch 1")
    job = store.jobs.get(job_id)
    assert (job.state, job.progress_done, job.progress_total, job.progress_unit) == (
        "running",
        50,
        200,
        "steps",
    )
    store.shards.release(held)
    assert store.jobs.get(job_id).progress_done == 50
    store.shards.progress(claim(store), 40, None)
    assert (store.jobs.get(job_id).progress_done, store.jobs.get(job_id).progress_total) == (40, 200)


def test_a_plan_shard_says_what_it_does_but_counts_nothing(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    store.shards.progress(claim(store), 5, 10, "hashing the data")
    job = store.jobs.get(job_id)
    assert (job.state, job.progress_done, job.progress_total) == ("starting", 0, None)
    assert job.message == "hashing the data"
