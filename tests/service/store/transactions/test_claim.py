"""Claims of shards: who gets which one, when, and exclusively."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import pytest

from assay.service.store.rows import Claim
from assay.service.store.store import Store, open_store
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import WORKER, add, claim, evaluate_spec, outcome, plan, planned, states, train_spec


def test_nothing_to_claim(store: Store) -> None:
    assert store.shards.claim(WORKER, ["cpu"], lease_seconds=60) is None


def test_a_training_on_several_devices_is_for_a_worker_that_has_them(store: Store) -> None:
    spec = train_spec()
    spec["execution"]["devices"] = 4
    large, small = add(store, spec), add(store, train_spec())
    for devices in (1, 3):
        assert store.shards.claimable(["cpu"], devices)
    held = store.shards.claim(WORKER, ["cpu"], lease_seconds=60)
    assert held is not None
    assert held.job_id == small
    assert not store.shards.claimable(["cpu"], 3)
    assert store.shards.claim(WORKER, ["cpu"], lease_seconds=60, warm_job=large, devices=3) is None
    assert store.shards.claimable(["cpu"], 4)
    held = store.shards.claim(WORKER, ["cpu"], lease_seconds=60, devices=4)
    assert held is not None
    assert held.job_id == large


def test_a_worker_is_not_given_the_jobs_that_it_is_not_fit_for(store: Store) -> None:
    first, second = planned(store, 1), planned(store, 1)
    held = claim(store, without=[first])
    assert held.job_id == second
    assert store.shards.claim("w", ["cpu"], lease_seconds=60, without=[first], warm_job=first) is None
    again = claim(store)
    assert again.job_id == first
    store.shards.release(again, "a worker gave a shard back")
    assert store.jobs.get(first).message == "a worker gave a shard back"


def test_workers_are_counted_by_their_devices(store: Store) -> None:
    store.workers.beat("one", "box", ["cpu"], 1)
    store.workers.beat("four", "box", ["cuda", "cpu"], 2, devices=4)
    counted = [store.workers.online_lately("cpu", devices) for devices in (1, 2, 4, 5)]
    assert (
        counted == [store.workers.online("cpu", devices=devices) for devices in (1, 2, 4, 5)] == [2, 1, 1, 0]
    )


def test_the_first_claim_starts_the_job_and_its_clock(store: Store) -> None:
    job_id = add(store, evaluate_spec(timeout_seconds=100))
    before = store.jobs.get(job_id)
    assert (before.state, before.started_at, before.deadline) == ("queued", None, None)
    held = claim(store)
    assert held == Claim(
        shard_id=f"{job_id}-plan",
        job_id=job_id,
        kind="plan",
        attempt=1,
        fence=1,
        worker=WORKER,
        spec=before.spec,
        plan=None,
        evaluation=0,
        number=0,
        start=0,
        stop=0,
        failures=0,
        losses=0,
    )
    job = store.jobs.get(job_id)
    assert job.state == "starting"
    assert job.started_at is not None
    assert job.deadline == pytest.approx(job.started_at + 100, abs=5)
    assert job.created_at <= job.started_at
    running = store.shards.running()
    assert [(row.id, row.owner, row.worker, row.fence) for row in running] == [
        (held.shard_id, WORKER, WORKER, 1)
    ]
    assert running[0].lease_until == pytest.approx(job.started_at + 60, abs=5)


def test_a_later_claim_does_not_move_the_deadline(store: Store) -> None:
    job_id = planned(store, 2, timeout_seconds=100)
    first = store.jobs.get(job_id)
    assert (first.state, first.plan) == ("running", {k: v for k, v in plan(2).items() if k != "shards"})
    held = claim(store)
    assert (held.kind, held.evaluation, held.number, held.start, held.stop) == ("evaluate", 0, 0, 0, 10)
    assert held.plan == first.plan
    assert (store.jobs.get(job_id).started_at, store.jobs.get(job_id).deadline) == (
        first.started_at,
        first.deadline,
    )


def test_a_job_that_was_given_back_keeps_its_clock(store: Store) -> None:
    job_id = add(store, evaluate_spec(timeout_seconds=100))
    store.shards.release(claim(store))
    first = store.jobs.get(job_id)
    assert (first.state, first.started_at is None) == ("queued", False)
    claim(store)
    again = store.jobs.get(job_id)
    assert (again.state, again.started_at, again.deadline) == ("starting", first.started_at, first.deadline)


def test_the_order_is_warm_job_then_priority_then_age_then_number(store: Store) -> None:
    low = planned(store, 2, priority=1)
    old = planned(store, 2, 1, priority=7)
    young = planned(store, 2, priority=7)
    claims = [claim(store, warm_job=low)] + [claim(store) for _ in range(6)]
    assert [(one.job_id, one.evaluation, one.number) for one in claims] == [
        (low, 0, 0),
        (old, 0, 0),
        (old, 0, 1),
        (old, 1, 0),
        (young, 0, 0),
        (young, 0, 1),
        (low, 0, 1),
    ]


def test_a_warm_job_without_work_gives_way(store: Store) -> None:
    gone = planned(store, 1)
    assert claim(store).job_id == gone
    other = add(store, evaluate_spec())
    assert claim(store, warm_job=gone).job_id == other


def test_a_worker_gets_only_what_its_devices_can_run(store: Store) -> None:
    cuda = add(store, evaluate_spec(device="cuda", priority=9))
    auto = add(store, train_spec(device="auto"))
    cpu = add(store, evaluate_spec(device="cpu", priority=0))
    assert [claim(store).job_id, claim(store).job_id] == [auto, cpu]
    assert store.shards.claim(WORKER, ["cpu"], lease_seconds=60, warm_job=cuda) is None
    held = store.shards.claim(WORKER, ["cuda"], lease_seconds=60)
    assert held is not None
    assert held.job_id == cuda
    assert store.shards.finish_plan(held, plan(1, device="cuda"))
    assert store.shards.claim(WORKER, ["cpu"], lease_seconds=60) is None
    assert store.shards.claim(WORKER, ["cpu", "cuda"], lease_seconds=60) is not None


def test_the_plan_pins_the_device_of_every_shard(store: Store) -> None:
    job_id = planned(store, 2)
    assert {row.device for row in store.shards.of(job_id) if row.kind == "evaluate"} == {"cpu"}
    assert store.shards.claim(WORKER, ["cuda"], lease_seconds=60) is None


def test_shards_of_waiting_and_ended_jobs_are_not_claimed(store: Store) -> None:
    train = add(store, train_spec(priority=0))
    add(store, evaluate_spec(weights_from=train, priority=9))
    assert claim(store).job_id == train
    canceled = add(store, evaluate_spec())
    store.jobs.cancel(canceled)
    failed = planned(store, 3)
    store.jobs.fail(failed, "boom", "no")
    canceling = planned(store, 3)
    claim(store)
    assert store.jobs.cancel(canceling).state == "canceling"
    assert store.shards.claim(WORKER, ["cpu"], lease_seconds=60) is None
    assert states(store, canceled, failed, canceling) == ["canceled", "failed", "canceling"]


def drain(store: Store, worker: str) -> list[str]:
    """Claims and finishes shards until there are none."""
    mine = []
    while (held := store.shards.claim(worker, ["cpu"], lease_seconds=60)) is not None:
        mine.append(held.shard_id)
        if held.kind == "plan":
            assert store.shards.finish_plan(held, plan(12))
        else:
            assert store.shards.finish(held, outcome(held)) is not None
    return mine


@ALWAYS_ON_BOTH
def test_eight_threads_claim_each_shard_once(store: Store) -> None:
    jobs = [planned(store, 20) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        claimed = Counter(
            shard for mine in pool.map(lambda i: drain(store, f"w{i}"), range(8)) for shard in mine
        )
    wanted = {row.id for job in jobs for row in store.shards.of(job) if row.kind == "evaluate"}
    assert len(wanted) == 40
    assert claimed == Counter(wanted)
    assert {row.fence for job in jobs for row in store.shards.of(job)} == {1}
    assert sorted(store.jobs.ready_to_finish()) == sorted(jobs)
    assert [len(store.results.outcomes(job, None)) for job in jobs] == [20, 20]


def drain_alone(url: str, worker: str, start: Barrier, claimed: Queue[list[str]]) -> None:
    """Worker process: opens its own store, and drains it together with the others."""
    with open_store(url, migrate=False) as store:
        start.wait(60)
        claimed.put(drain(store, worker))


# Forked while pytest has no threads of its own; Python warns of threads that libraries left.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@ALWAYS_ON_BOTH
def test_three_processes_claim_each_shard_once(database_url: str) -> None:
    with open_store(database_url, migrate=False) as store:
        jobs = [add(store, evaluate_spec()) for _ in range(3)]
    # The store is closed: processes must not share connections.
    processes = multiprocessing.get_context("fork")
    start, claimed = processes.Barrier(3), processes.Queue()
    arguments = [(database_url, f"p{i}", start, claimed) for i in range(3)]
    workers = [processes.Process(target=drain_alone, args=one) for one in arguments]
    for worker in workers:
        worker.start()
    by_worker = [claimed.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    with open_store(database_url, migrate=False) as store:
        wanted = Counter(row.id for job in jobs for row in store.shards.of(job))
        assert Counter(shard for mine in by_worker for shard in mine) == wanted
        assert len(wanted) == 3 * 13
        assert sorted(store.jobs.ready_to_finish()) == sorted(jobs)
