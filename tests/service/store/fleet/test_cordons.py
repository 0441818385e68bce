"""Cordons: by the worker's name, kept over its restarts, and seen in every count of workers."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from assay.service.contract.errors import NotFound
from assay.service.store.audit import Actor, AuditFilter
from assay.service.store.clock import now
from assay.service.store.store import Store
from assay.service.store.tables import workers
from tests.support.jobs import add, claim, evaluate_spec

OLD, NEW = "box:boot:1:2:0", "box:boot:9:9:0"


def beat(store: Store, worker: str, name: str) -> None:
    store.workers.beat(worker, "box", ["cpu"], 1, {}, 1, name)


def silent(store: Store, worker: str, seconds: float) -> None:
    with store._database.writing() as connection:
        statement = update(workers).where(workers.c.worker == worker)
        connection.execute(statement.values(seen_at=now() - seconds))


def test_a_cordon_outlives_heartbeats_and_restarts(store: Store) -> None:
    beat(store, OLD, "box:gpu0")
    assert store.workers.online("cpu") == 1
    found = store.cordons.set("box:gpu0", drain=False, by_whom="ops")
    assert found.cordon is not None
    assert (found.cordon.by_whom, found.cordon.drain) == ("ops", False)
    beat(store, OLD, "box:gpu0")
    store.workers.gone(OLD)
    beat(store, NEW, "box:gpu0")
    assert store.workers.online("cpu") == 0
    assert store.workers.online("cpu", cordoned=True) == 1
    assert [row.in_service for row in store.online_workers()] == [False]
    assert store.cordons.of("box:gpu0") is not None
    assert store.cordons.lift("box:gpu0").cordon is None
    assert store.workers.online("cpu") == 1
    assert store.cordons.of("box:gpu0") is None


def test_the_list_has_the_running_shard(store: Store) -> None:
    beat(store, "w1", "box:0")
    beat(store, "w2", "box:1")
    job_id = add(store, evaluate_spec())
    held = claim(store, worker="w1")
    first, second = store.cordons.workers()
    assert (first.name, first.running, first.online) == ("box:0", (held.shard_id, job_id), True)
    assert (second.name, second.running) == ("box:1", None)


def test_of_a_name_the_process_that_lives_is_listed(store: Store) -> None:
    beat(store, OLD, "box:0")
    silent(store, OLD, 600)
    assert [(one.worker, one.online) for one in store.cordons.workers()] == [(OLD, False)]
    beat(store, NEW, "box:0")
    assert [(one.worker, one.online) for one in store.cordons.workers()] == [(NEW, True)]


def test_a_cordon_whose_worker_is_gone_is_listed_and_can_be_lifted(store: Store) -> None:
    beat(store, OLD, "box:0")
    store.cordons.set("box:0", drain=True, by_whom="ops")
    store.workers.gone(OLD)
    (found,) = store.cordons.workers()
    assert (found.name, found.worker, found.online) == ("box:0", None, False)
    store.cordons.lift("box:0")
    assert store.cordons.workers() == []


def test_an_unknown_name_has_the_nearest(store: Store) -> None:
    beat(store, OLD, "box:gpu0")
    with pytest.raises(NotFound, match="there is no worker 'box:gpu1'; did you mean box:gpu0") as caught:
        store.cordons.set("box:gpu1", drain=False, by_whom="ops")
    (detail,) = caught.value.details
    assert (detail.loc, detail.allowed, detail.nearest) == (["path", "name"], ["box:gpu0"], "box:gpu0")
    with pytest.raises(NotFound):
        store.cordons.lift("x")


def test_the_id_is_a_name_too_and_workers_of_earlier_versions_have_no_other(store: Store) -> None:
    beat(store, OLD, "box:gpu0")
    assert store.cordons.set(OLD, drain=False, by_whom="ops").name == "box:gpu0"
    store.workers.beat("older", "box", ["cpu"], 1)
    assert store.cordons.set("older", drain=False, by_whom="ops").name == "older"


def test_cordons_are_audited(store: Store) -> None:
    beat(store, OLD, "box:0")
    by = Actor(tenant="ops", key="k")
    store.cordons.set("box:0", drain=False, by_whom="ops", by=by)
    store.cordons.set("box:0", drain=True, by_whom="ops", by=by)
    store.cordons.lift("box:0", by=by)
    entries = store.audit.page(AuditFilter())[0]
    assert [(entry.action, entry.object) for entry in entries] == [
        ("worker.uncordon", "box:0"),
        ("worker.drain", "box:0"),
        ("worker.cordon", "box:0"),
    ]


def test_a_fault_of_a_device_is_counted_apart(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    for _ in range(2):
        store.shards.device_fault(claim(store), "ECC error")
    (shard,) = store.shards.of(job_id)
    assert (shard.state, shard.failures, shard.losses, shard.device_faults) == ("queued", 0, 0, 2)
    assert store.jobs.get(job_id).message == "ECC error"
    store.shards.device_fault(claim(store), "ECC error")
    job = store.jobs.get(job_id)
    assert (job.state, job.error and job.error["type"]) == ("failed", "device_fault")
    store.jobs.retry(job_id)
    assert [shard.device_faults for shard in store.shards.of(job_id)] == [0]
