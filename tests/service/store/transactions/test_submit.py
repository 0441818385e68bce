"""The same key and body make one job, whoever asks and how often."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from assay.service.contract.errors import IdempotencyMismatch, InvalidSpec
from assay.service.store.store import Store
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import evaluate_spec


def test_the_same_key_and_body_give_the_same_job(store: Store) -> None:
    first, created = store.jobs.add(evaluate_spec(), body_sha256="a", idempotency_key="k")
    again, created_again = store.jobs.add(evaluate_spec(), body_sha256="a", idempotency_key="k")
    assert (created, created_again) == (True, False)
    assert again == first
    store.jobs.cancel(first.id)
    assert store.jobs.add(evaluate_spec(), body_sha256="a", idempotency_key="k")[0].state == "canceled"


def test_the_same_key_with_another_body_is_refused(store: Store) -> None:
    store.jobs.add(evaluate_spec(), body_sha256="a", idempotency_key="k")
    with pytest.raises(IdempotencyMismatch):
        store.jobs.add(evaluate_spec(), body_sha256="b", idempotency_key="k")
    assert len(store.jobs.page()[0]) == 1


def test_a_key_leads_to_its_job_without_a_spec(store: Store) -> None:
    job, _ = store.jobs.add(evaluate_spec(), body_sha256="a", idempotency_key="k")
    assert store.jobs.known("k", "a") == job
    assert store.jobs.known("other", "a") is None
    with pytest.raises(IdempotencyMismatch):
        store.jobs.known("k", "b")
    store.jobs.cancel(job.id)
    store.jobs.delete(job.id)
    assert store.jobs.known("k", "a") is None


def test_other_keys_and_no_key_make_jobs_of_their_own(store: Store) -> None:
    for key in ("k", "K", "", "\0", None, None):
        assert store.jobs.add(evaluate_spec(), body_sha256="a", idempotency_key=key)[1]
    assert len(store.jobs.page()[0]) == 6


def test_a_refused_spec_does_not_use_up_its_key(store: Store) -> None:
    with pytest.raises(InvalidSpec):
        store.jobs.add(evaluate_spec(weights_from="0" * 26), body_sha256="a", idempotency_key="k")
    assert store.jobs.add(evaluate_spec(), body_sha256="b", idempotency_key="k")[1]


@ALWAYS_ON_BOTH
def test_sixteen_threads_with_one_key_make_one_job(store: Store) -> None:
    with ThreadPoolExecutor(16) as pool:
        calls = [
            pool.submit(store.jobs.add, evaluate_spec(tags=["t"]), body_sha256="a", idempotency_key="k")
            for _ in range(16)
        ]
        answers = [call.result() for call in calls]
    assert sum(created for _, created in answers) == 1
    assert len({job.id for job, _ in answers}) == 1
    assert [job.id for job in store.jobs.page(tag="t")[0]] == [answers[0][0].id]
    assert len(store.shards.of(answers[0][0].id)) == 1


@ALWAYS_ON_BOTH
def test_a_race_of_two_bodies_has_one_winner(store: Store) -> None:
    def post(body: str) -> bool | None:
        try:
            return store.jobs.add(evaluate_spec(), body_sha256=body, idempotency_key="k")[1]
        except IdempotencyMismatch:
            return None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, "abababab"))
    assert sorted(answers, key=str) == [False] * 3 + [None] * 4 + [True]
    assert len(store.jobs.page()[0]) == 1
