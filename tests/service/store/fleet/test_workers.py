"""Counters only grow, whoever adds to them, and survive the jobs that they counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from assay.service.contract.weights.pulled import PulledRecord
from assay.service.store.store import Store
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import add, train_spec

EXAMPLES = ("assay_examples_total", (("device", "cpu"),))
STARTS = ("assay_evaluator_starts_total", ())


def test_amounts_add_up_by_name_and_labels(store: Store) -> None:
    store.counters.add({EXAMPLES: 5, STARTS: 1})
    store.counters.add({EXAMPLES: 2.5})
    store.counters.add({("assay_examples_total", (("device", "cuda"),)): 7})
    store.counters.add({})
    assert store.overview().counters == {
        EXAMPLES: 7.5,
        STARTS: 1,
        ("assay_examples_total", (("device", "cuda"),)): 7,
    }


def test_labels_are_one_key_in_any_order(store: Store) -> None:
    store.counters.add({("n", (("a", "1"), ("b", '"x\n'))): 1})
    store.counters.add({("n", (("b", '"x\n'), ("a", "1"))): 1})
    assert store.overview().counters == {("n", (("a", "1"), ("b", '"x\n'))): 2}


@ALWAYS_ON_BOTH
def test_many_may_add_at_once(store: Store) -> None:
    keys = [(f"c{number}", ()) for number in range(5)]

    def work(turn: int) -> None:
        # Each in another order: only their being sorted keeps PostgreSQL free of deadlocks.
        store.counters.add(dict.fromkeys(keys[turn % 5 :] + keys[: turn % 5], 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(80)))
    assert store.overview().counters == dict.fromkeys(keys, 80)


def test_deleting_a_job_leaves_them(store: Store) -> None:
    job_id = add(store, train_spec())
    store.counters.add({EXAMPLES: 5})
    store.jobs.cancel(job_id)
    store.jobs.delete(job_id)
    assert store.overview().counters == {EXAMPLES: 5}


def test_pulled_weights_are_those_of_all_workers_that_say(store: Store) -> None:
    one: PulledRecord = {"sha256": "1" * 64, "aliases": [], "facts": {}}
    two: PulledRecord = {"sha256": "2" * 64, "aliases": ["timm:b"], "facts": {"classes": 1000}}
    assert store.workers.pulled() is None, "no worker is online"
    store.workers.beat("a", "host", ["cpu"], 1, {"weights": {"timm:a": one}})
    assert store.workers.pulled() == {"timm:a": one}
    store.workers.beat("b", "host", ["cpu"], 2, {"weights": {"timm:b.v1": two}})
    assert store.workers.pulled() == {"timm:a": one, "timm:b.v1": two}
    store.workers.beat("c", "host", ["cpu"], 3, {})
    assert store.workers.pulled() is None, "a worker of an earlier version may have anything"
    store.workers.beat("c", "host", ["cpu"], 3, {}, 0)
    assert store.workers.pulled() == {"timm:a": one, "timm:b.v1": two}, "it takes no shard"


def test_a_library_is_there_while_a_worker_that_takes_shards_has_it(store: Store) -> None:
    assert store.workers.libraries() == frozenset()
    store.workers.beat("a", "host", ["cpu"], 1, {"libraries": {"textattack": "0.3.11"}})
    store.workers.beat("b", "host", ["cpu"], 2, {"libraries": {"cleverhans": "4.0.0"}})
    store.workers.beat("c", "host", ["cpu"], 3, {})
    assert store.workers.libraries() == {"textattack", "cleverhans"}
    store.workers.beat("a", "host", ["cpu"], 1, {"libraries": {"textattack": "0.3.11"}}, 0)
    assert store.workers.libraries() == {"cleverhans"}
    assert store.workers.libraries(within_seconds=-1) == frozenset()


def test_workers_in_service_alone_disagree_on_data(store: Store) -> None:
    def beat(name: str, sha256: str, devices: int = 1, identity: str = "") -> None:
        data = {"data": {"cifar10": sha256 * 32}}
        store.workers.beat(name, "box", ["cpu"], 1, data, devices, f"box:{name}", identity)

    beat("a", "aa")
    beat("unfit", "bb", devices=0)
    beat("out", "cc")
    store.cordons.set("box:out", drain=False, by_whom="ops")
    beat("foreign", "dd", identity="f0" * 8)
    store.identities.rule("f0" * 8, "withdrawn", "ops")
    store.workers.beat("silent", "box", ["cpu"], 1)
    assert store.workers.disagreements() == {}
    store.cordons.lift("box:out")
    assert store.workers.disagreements() == {"cifar10": {"aa" * 32: ["box:a"], "cc" * 32: ["box:out"]}}
    assert store.workers.disagreements(within_seconds=-5) == {}
