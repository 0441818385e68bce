"""The numbers of an operator are right, and cheap."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects import postgresql

from assay.service.store.overview import (
    jobs_by_state,
    longest_queued,
    oldest_queued,
    shards_by_device,
    slowest_running,
    waiting_shards,
)
from assay.service.store.store import Store
from tests.support.jobs import add, claim, evaluate_spec, outcome, planned, train_spec


def test_nothing_is_there_at_first(store: Store) -> None:
    found = store.overview()
    assert (found.jobs, found.shards, found.workers, found.counters) == ({}, {}, (), {})
    assert found.oldest_queued_seconds == 0


def test_jobs_and_open_shards_are_counted(store: Store) -> None:
    running = planned(store, 3)
    held = claim(store)
    assert store.shards.finish(held, outcome(held)) is not None
    claim(store)
    source = add(store, train_spec(device="cuda"))
    add(store, evaluate_spec(weights_from=source))
    canceled = add(store, evaluate_spec())
    store.jobs.cancel(canceled)
    found = store.overview()
    assert found.jobs == {"running": 1, "queued": 1, "waiting": 1, "canceled": 1}
    # The plan of the waiting job is no work yet, what is done or canceled none any more.
    assert found.shards == {("cpu", "queued"): 1, ("cpu", "running"): 1, ("cuda", "queued"): 1}
    assert store.jobs.get(running).state == "running"


def test_the_oldest_queued_job_tells_how_long_it_has_waited(store: Store) -> None:
    first = add(store, train_spec(priority=0))
    add(store, train_spec(priority=9))
    found = store.overview().oldest_queued_seconds
    assert 0 <= found < 60
    store.jobs.cancel(first)
    assert store.overview().oldest_queued_seconds <= found + 60


def test_shards_of_running_jobs_wait_and_hang_in_sight(store: Store) -> None:
    planned(store, 2)
    held = claim(store)
    with store._database.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE shards SET queued_at = queued_at - 100, progressed_at = progressed_at - 50"
        )
    found = store.overview()
    assert found.oldest_queued_seconds == 0, "no job is queued"
    assert 100 <= found.longest_queued_seconds < 160
    assert 50 <= found.slowest_seconds < 110
    store.shards.progress(held, 1, 10, "pgd")
    assert store.overview().slowest_seconds < 40
    store.shards.release(held)
    assert store.overview().slowest_seconds == 0


def test_workers_bring_what_they_measure(store: Store) -> None:
    gauges = {"gpu": {"name": "H200", "total": 3, "used": 2, "reserved": 1}}
    store.workers.beat("a", "box", ["cuda", "cpu"], 7, gauges)
    store.workers.beat("b", "box", ["cpu"], 8)
    one, two = store.overview().workers
    assert (one.worker, one.host, one.device_classes, one.pid) == ("a", "box", ("cuda", "cpu"), 7)
    assert (one.gauges, two.gauges) == (gauges, {})
    store.workers.beat("a", "box", ["cuda", "cpu"], 7)
    assert store.overview().workers[0].gauges == {}
    with store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE workers SET seen_at = seen_at - 61 WHERE worker = 'a'")
    assert [row.worker for row in store.overview().workers] == ["b"]


def plan_of(store: Store, statement: Any) -> str:
    """Query plan with the planner's preference for scans and sorts of small tables disabled."""
    with store._database.writing() as connection:  # one transaction, for SET LOCAL
        text = str(
            statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        ).replace("%%", "%")
        if isinstance(connection.dialect, postgresql.dialect):
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
            connection.exec_driver_sql("SET LOCAL enable_sort = off")
            rows = connection.exec_driver_sql(f"EXPLAIN {text}").scalars()
        else:
            rows = (row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))
        return "\n".join(rows)


def test_no_statement_reads_what_has_ended(store: Store) -> None:
    """Ended jobs are counted in an index, and the shards of ended jobs are not read."""
    counting = plan_of(store, jobs_by_state())
    assert "Index Only Scan" in counting or "COVERING INDEX" in counting
    if store._database.file is None:
        return  # of empty tables PostgreSQL says nothing that would hold for full ones
    working = plan_of(store, shards_by_device())
    assert "SCAN shards" not in working
    assert "SCAN jobs" not in working
    for statement in (oldest_queued(), longest_queued(), waiting_shards(), slowest_running()):
        plan = plan_of(store, statement)
        assert "SCAN jobs" not in plan
        assert "SCAN shards" not in plan or "shards_running_idx" in plan or "shards_queued_idx" in plan, plan
