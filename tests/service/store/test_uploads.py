"""Files that are on their way to a job: counted once, together, and for a while."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from assay.service.store.store import Store
from assay.service.store.uploads import PromisedFiles
from tests.support.jobs import add, train_spec

SOON = 600.0


def test_what_there_is_no_room_for_is_not_promised(store: Store) -> None:
    job, promises = add(store, train_spec()), store.part(PromisedFiles)
    assert promises.add(job, "a", 6, SOON, {"there": 1}, 10) == 7
    assert promises.add(job, "b", 6, SOON, {"there": 1}, 10) == 13
    assert promises.of(job) == {"a": 6}
    assert promises.add(job, "b", 6, SOON, {"there": 1}, 0) == 13
    assert promises.of(job) == {"a": 6, "b": 6}
    assert promises.add(job, "c", 1, SOON, {"a": 2}, 10) == 9, "what has come counts as it came"


def test_the_largest_of_several_puts_to_a_name_counts(store: Store) -> None:
    job, promises = add(store, train_spec()), store.part(PromisedFiles)
    for size in (3, 9, 2):
        promises.add(job, "a", size, SOON, {}, 0)
    assert promises.of(job) == {"a": 9}


def test_a_promise_ends(store: Store) -> None:
    job, other, promises = add(store, train_spec()), add(store, train_spec()), store.part(PromisedFiles)
    promises.add(job, "late", 9, -1.0, {}, 0)
    assert promises.of(job) == {}
    for name in "ab":
        promises.add(job, name, 1, SOON, {}, 0)
    promises.add(other, "a", 1, SOON, {}, 0)
    promises.forget(job, ["a", "none"])
    promises.forget(job, ["none"])
    assert (promises.of(job), promises.of(other)) == ({"b": 1}, {"a": 1})
    store.jobs.fail(other, "x", "x")
    store.jobs.delete(other)
    assert promises.of(other) == {}


def test_promises_at_once_have_one_room(store: Store) -> None:
    job, promises = add(store, train_spec()), store.part(PromisedFiles)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: promises.add(job, name, 6, SOON, {}, 13), "abcd"))
    assert len(promises.of(job)) == 2
