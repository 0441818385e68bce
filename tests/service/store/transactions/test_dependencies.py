"""Jobs that need another job's weights wait for it, and share its fate when it gives none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from assay.service.contract.errors import InvalidSpec, InvalidState
from assay.service.store.store import Store
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import (
    WAYS,
    Using,
    add,
    claim,
    evaluate_spec,
    outcome,
    planned,
    states,
    succeeded,
    train_spec,
)

UNKNOWN = "0" * 26


@WAYS
def test_a_job_waits_until_its_weights_are_there(store: Store, using: Using) -> None:
    train = add(store, train_spec())
    waiting = [add(store, evaluate_spec(**using(train))) for _ in range(2)]
    other = add(store, evaluate_spec())
    assert states(store, *waiting, other) == ["waiting", "waiting", "queued"]
    assert store.jobs.queue_positions([store.jobs.get(waiting[0])]) == {}
    succeeded(store, store.jobs.get(train))
    assert states(store, *waiting, other) == ["queued", "queued", "queued"]
    # One that comes later need not wait.
    assert states(store, add(store, evaluate_spec(**using(train)))) == ["queued"]


@pytest.mark.parametrize("how", ["failed", "was canceled", "timed out"])
def test_when_the_weights_do_not_come_all_who_wait_fail(store: Store, how: str) -> None:
    train = add(store, train_spec(timeout_seconds=-1))
    finer = add(store, train_spec(weights_from=train))
    ends = [add(store, evaluate_spec(weights_from=source)) for source in (train, finer)]
    held = claim(store)
    ways: dict[str, Callable[[], object]] = {
        "failed": lambda: store.shards.fail(held, "boom", "no", retry=False),
        "was canceled": lambda: (store.jobs.cancel(train), store.shards.canceled(held)),
        "timed out": store.jobs.time_out,
    }
    assert states(store, finer, *ends) == ["waiting"] * 3
    ways[how]()
    assert states(store, finer, *ends) == ["failed"] * 3
    for job_id, cause, what in ((finer, train, how), (ends[0], train, how), (ends[1], finer, "failed")):
        job = store.jobs.get(job_id)
        message = f"job {cause}, whose weights this job needs, {what}"
        assert job.error == {"type": "dependency_failed", "message": message}
        assert job.finished_at is not None
        assert [row.state for row in store.shards.of(job_id)] == ["canceled"]


def test_a_long_chain_fails_to_its_end(store: Store) -> None:
    chain = [add(store, train_spec())]
    for _ in range(30):
        chain.append(add(store, train_spec(weights_from=chain[-1])))
    store.jobs.cancel(chain[0])
    assert states(store, *chain) == ["canceled"] + ["failed"] * 30


@WAYS
def test_canceling_alone_does_not_fail_who_waits(store: Store, using: Using) -> None:
    train = add(store, train_spec())
    waiting = add(store, evaluate_spec(**using(train)))
    held = claim(store)
    store.jobs.cancel(train)
    assert states(store, train, waiting) == ["canceling", "waiting"]
    store.shards.canceled(held)
    assert states(store, train, waiting) == ["canceled", "failed"]


def test_a_waiting_job_can_be_canceled_and_failed(store: Store) -> None:
    train = add(store, train_spec())
    first, second = (add(store, evaluate_spec(weights_from=train)) for _ in range(2))
    assert store.jobs.cancel(first).state == "canceled"
    assert store.jobs.fail(second, "boom", "no")
    succeeded(store, store.jobs.get(train))
    assert states(store, first, second) == ["canceled", "failed"]


@WAYS
def test_a_retry_waits_again_and_does_not_revive_others(store: Store, using: Using) -> None:
    train = add(store, train_spec())
    first, second = (add(store, evaluate_spec(**using(train))) for _ in range(2))
    store.jobs.fail(train, "boom", "no")
    retried = store.jobs.retry(first)
    assert (retried.state, retried.attempt) == ("waiting", 2)
    assert train in retried.message
    store.jobs.retry(train)
    assert states(store, train, first, second) == ["queued", "waiting", "failed"]
    succeeded(store, store.jobs.get(train))
    assert states(store, first, second) == ["queued", "failed"]
    assert store.jobs.get(first).message == ""
    assert store.jobs.retry(second).state == "queued"


def test_weights_that_cannot_come_are_refused(store: Store) -> None:
    canceled = add(store, train_spec())
    store.jobs.cancel(canceled)
    for source in (UNKNOWN, canceled, "\0"):
        with pytest.raises(InvalidSpec) as caught:
            add(store, evaluate_spec(weights_from=source))
        assert [detail.loc for detail in caught.value.details] == [["model", "weights", "job"]]
        assert caught.value.details[0].given == source
    assert len(store.jobs.page()[0]) == 1


@WAYS
def test_a_job_whose_weights_are_still_wanted_is_not_deleted(store: Store, using: Using) -> None:
    train = add(store, train_spec())
    succeeded(store, store.jobs.get(train))
    user = add(store, evaluate_spec(**using(train)))
    with pytest.raises(InvalidState, match=user):
        store.jobs.delete(train)
    store.jobs.cancel(user)
    store.jobs.delete(train)
    with pytest.raises(InvalidState, match="deleted"):
        store.jobs.retry(user)
    assert states(store, user) == ["canceled"]
    assert [row.state for row in store.shards.of(user)] == ["canceled"]


def test_a_job_that_needs_several_waits_for_the_last(store: Store) -> None:
    first, second, third = (add(store, train_spec()) for _ in range(3))
    # One of them twice, as its own weights and as an attack's.
    user = add(store, evaluate_spec(weights_from=first, attacks_from=[second, first, third]))
    for source in (third, first):
        succeeded(store, store.jobs.get(source))
        assert states(store, user) == ["waiting"]
    succeeded(store, store.jobs.get(second))
    assert states(store, user) == ["queued"]
    for source in (first, second, third):
        with pytest.raises(InvalidState, match=user):
            store.jobs.delete(source)


def test_a_job_that_needs_several_fails_with_the_first_that_fails(store: Store) -> None:
    first, second = (add(store, train_spec()) for _ in range(2))
    finer = add(store, train_spec(weights_from=first))
    user = add(store, evaluate_spec(weights_from=second, attacks_from=[finer, first]))
    succeeded(store, store.jobs.get(second))
    store.jobs.fail(first, "boom", "no")
    assert states(store, finer, user) == ["failed", "failed"]
    message = f"job {first}, whose weights this job needs, failed"
    assert store.jobs.get(user).error == {"type": "dependency_failed", "message": message}
    retried = store.jobs.retry(user)
    assert (retried.state, retried.attempt) == ("waiting", 2)
    assert first in retried.message
    assert finer in retried.message
    assert second not in retried.message
    for source in (first, finer):
        store.jobs.retry(source)
        assert states(store, user) == ["waiting"]
        succeeded(store, store.jobs.get(source))
    assert states(store, user) == ["queued"]


def test_each_field_that_names_a_job_without_weights_is_named(store: Store) -> None:
    canceled, good = add(store, train_spec()), add(store, train_spec())
    store.jobs.cancel(canceled)
    with pytest.raises(InvalidSpec) as caught:
        add(store, evaluate_spec(weights_from=UNKNOWN, attacks_from=[good, canceled]))
    assert [(detail.loc, detail.message, detail.given) for detail in caught.value.details] == [
        (["model", "weights", "job"], "there is no such job", UNKNOWN),
        (["evaluations", 2, "params", "job"], "this job is canceled and has no weights", canceled),
    ]
    assert {row.id for row in store.jobs.page()[0]} == {canceled, good}


@ALWAYS_ON_BOTH
def test_two_that_succeed_at_once_release_who_needs_both(store: Store) -> None:
    pairs = [(add(store, train_spec()), add(store, train_spec())) for _ in range(4)]
    users = [add(store, evaluate_spec(weights_from=one, attacks_from=[other])) for one, other in pairs]
    sources = [source for pair in pairs for source in pair]
    for source in sources:
        held = claim(store, warm_job=source)
        store.shards.finish(held, outcome(held))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda source: store.jobs.succeed(source, {}), sources))
    assert states(store, *users) == ["queued"] * 4


@pytest.mark.costly
@WAYS
@ALWAYS_ON_BOTH
def test_who_comes_while_the_training_ends_never_waits_for_ever(store: Store, using: Using) -> None:
    sources = [add(store, train_spec()) for _ in range(4)]
    held = [claim(store) for _ in sources]
    for one in held[:2]:
        store.shards.finish(one, outcome(one))

    def end(source: str) -> None:
        if not store.jobs.succeed(source, {}):
            store.jobs.fail(source, "boom", "no")

    def use(source: str) -> str | None:
        try:
            return add(store, evaluate_spec(**using(source)))
        except InvalidSpec:
            return None

    with ThreadPoolExecutor(8) as pool:
        ends = [pool.submit(end, source) for source in sources]
        users = [pool.submit(use, source) for source in sources * 4]
        for future in ends:
            future.result()
        made = [future.result() for future in users]
    assert states(store, *sources) == ["succeeded", "succeeded", "failed", "failed"]
    for source, job_id in zip(sources * 4, made, strict=True):
        if source in sources[:2]:
            assert job_id is not None
            assert states(store, job_id) == ["queued"]
        else:
            assert job_id is None or states(store, job_id) == ["failed"]


@pytest.mark.costly
@ALWAYS_ON_BOTH
def test_calls_on_a_job_and_its_dependents_do_not_lock_each_other_out(store: Store) -> None:
    train = add(store, train_spec())
    second = add(store, train_spec(weights_from=train))
    both = evaluate_spec(weights_from=train, attacks_from=[second])
    users = [add(store, spec) for spec in (both, evaluate_spec(weights_from=train)) * 2]
    other = planned(store, 6)

    def stir(turn: int) -> None:
        for call, job_id in (
            ("fail", train),
            ("retry", users[turn % 4]),
            ("retry", second),
            ("retry", train),
            ("cancel", users[turn % 3]),
        ):
            with contextlib.suppress(InvalidState):
                getattr(store.jobs, call)(job_id, *(("boom", "no") if call == "fail" else ()))
        held = store.shards.claim(f"w{turn}", ["cpu"], lease_seconds=-1, warm_job=other)
        if held is not None:
            store.shards.progress(held, 1, 10)
            store.shards.expire(cap=1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(stir, range(16)))
    # A deadlock or a lock timeout would have raised OperationalError above.
    assert set(states(store, train, *users)) <= {
        "queued",
        "waiting",
        "failed",
        "canceled",
        "starting",
        "running",
        "canceling",
    }
