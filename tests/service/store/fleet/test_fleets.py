"""Fleets: their last reports, and the work that there is for them."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import update

from assay.service.store.fleet.fleets import FORGOTTEN_SECONDS, HEARD_SECONDS, Fleet
from assay.service.store.store import Store
from assay.service.store.tables import cordons, fleets
from tests.support.jobs import add, claim, evaluate_spec, planned, train_spec

CPU = Fleet("mine", "Slurm", "cpu", 1, most=8, running=2, pending=3, reason="Priority")


def silent(store: Store, seconds: float) -> None:
    with store.workers._database.writing() as connection:
        connection.execute(update(fleets).values(seen_at=fleets.c.seen_at - seconds))


def test_shards_that_its_workers_could_run_are_counted(store: Store) -> None:
    planned(store, 3)
    add(store, evaluate_spec(device="cuda"))
    several = train_spec()
    several["execution"]["devices"] = 4
    add(store, several)
    ended = planned(store, 2)
    store.jobs.cancel(ended)
    assert store.workers.fleets.report(CPU).queued == 3
    gpu = Fleet("gpus", "Slurm", "cuda", 4, most=8, running=0, pending=0)
    assert store.workers.fleets.report(gpu).queued == 2  # on the GPU, or anywhere


@pytest.mark.parametrize(("name", "busy"), [("box:mine.7", 1), ("box:mine-2.7", 0), ("box:worker", 0)])
def test_shards_of_its_workers_are_busy(store: Store, name: str, busy: int) -> None:
    planned(store, 2)
    store.workers.beat("w", "box", ["cpu"], 1, {}, 1, name)
    claim(store, "w")
    assert store.workers.fleets.report(CPU).busy == busy


def test_a_fleet_is_away_and_then_forgotten(store: Store) -> None:
    store.workers.fleets.report(CPU)
    assert [(one.name, one.online) for one in store.workers.fleets.all()] == [("mine", True)]
    silent(store, HEARD_SECONDS + 10)
    assert [one.online for one in store.workers.fleets.all()] == [False]
    assert store.workers.fleets.waiting("cpu", 1) == ""
    silent(store, 86400)
    assert store.workers.fleets.all() == []


def test_a_job_waits_for_a_fleet_that_serves_it_and_was_asked(store: Store) -> None:
    waiting = store.workers.fleets.waiting
    store.workers.fleets.report(CPU)
    assert waiting("cpu", 1) == waiting("auto", 1) == "waiting for Slurm: Priority"
    assert waiting("cuda", 1) == waiting("cpu", 2) == ""
    store.workers.fleets.report(Fleet("mine", "Slurm", "cpu", 1, most=8, running=2, pending=0))
    assert waiting("cpu", 1) == ""


def test_that_no_fleet_is_asked_is_known_for_a_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each view of a queued job asks."""
    assert store.workers.fleets.waiting("cpu", 1) == ""
    monkeypatch.setattr(store.workers.fleets._database, "reading", lambda: pytest.fail("it is read again"))
    assert store.workers.fleets.waiting("auto", 1) == store.workers.fleets.waiting("cuda", 2) == ""
    monkeypatch.undo()
    store.workers.fleets.report(CPU)
    assert store.workers.fleets.waiting("cpu", 1) == "waiting for Slurm: Priority", (
        "a report is known at once"
    )
    read_at, asking = store.workers.fleets._asking
    store.workers.fleets._asking = read_at - 1, asking
    silent(store, HEARD_SECONDS + 10)
    assert store.workers.fleets.waiting("cpu", 1) == ""


def beat(store: Store, number: int, identity: str, source: str = "s") -> None:
    code = {"version": "1", "commit": None, "source_sha256": source}
    name = f"node:mine.{number}_1"
    store.workers.beat(f"w{number}", "node", ["cpu"], number, {"code": code}, 1, name, identity)
    time.sleep(0.02)  # no two begin within a tick of the clock


def test_the_code_of_its_workers_outlives_them(store: Store) -> None:
    planned(store, 3, planned_by="0ld")
    report = store.workers.fleets.report
    assert (report(CPU).queued, report(CPU).identity) == (3, "")
    beat(store, 1, "0ld")
    beat(store, 2, "new")
    found = report(CPU)
    assert (found.identity, found.queued, found.withheld) == ("new", 0, 3), "the worker that began last"
    beat(store, 1, "0ld")  # again
    assert report(CPU).identity == "new"
    for worker in ("w1", "w2"):
        store.workers.gone(worker)
    assert (report(CPU).identity, report(CPU).queued) == ("new", 0)
    assert report(CPU, "begins").identity == "", "its nodes may have been exchanged"
    assert report(CPU).queued == 3


def test_code_is_learned_from_workers_that_start_later(store: Store) -> None:
    """After an upgrade workers of the old code may still be there."""
    beat(store, 1, "0ld")
    assert store.workers.fleets.report(CPU, "begins").identity == ""
    beat(store, 2, "new")
    assert store.workers.fleets.report(CPU).identity == "new"
    store.identities.declare({"version": "2", "commit": None, "source_sha256": "s2"})
    assert store.workers.fleets.report(CPU).identity == "", "the service was exchanged"


def test_code_that_may_take_no_work_is_no_demand_and_jobs_say_so(store: Store) -> None:
    store.identities.declare({"version": "1", "commit": None, "source_sha256": "s"})
    add(store, evaluate_spec())
    store.workers.fleets.report(CPU)
    beat(store, 1, "g00d")
    assert store.workers.fleets.report(CPU).standing == ""
    store.workers.gone("w1")
    found = store.workers.fleets.report(CPU)
    assert (found.standing, found.queued) == ("", 1), "the release outlives the worker"
    beat(store, 2, "bad", "s2")
    found = store.workers.fleets.report(CPU)
    assert (found.standing, found.queued, found.withheld) == ("unknown", 0, 1)
    assert "code that may take no work (identity bad)" in store.workers.fleets.waiting("cpu", 1)
    store.identities.rule("bad", "allowed", "an operator")
    assert store.workers.fleets.report(CPU).queued == 1


def test_a_controller_that_ended_is_away_at_once(store: Store) -> None:
    store.workers.fleets.report(CPU)
    assert store.workers.fleets.report(CPU, "ends").online is False
    assert store.workers.fleets.waiting("cpu", 1) == ""
    assert store.workers.fleets.report(CPU, "begins").online is True


def test_a_cordon_of_a_worker_that_never_comes_again_is_forgotten(store: Store) -> None:
    for number in (1, 2):
        beat(store, number, "")
        store.cordons.set(f"node:mine.{number}_1", drain=True, by_whom="an operator")
    store.workers.gone("w1")
    store.workers.fleets.report(CPU)
    assert len(store.cordons.workers()) == 2, "its job may be requeued"
    with store._database.writing() as connection:
        connection.execute(update(cordons).values(since=cordons.c.since - FORGOTTEN_SECONDS - 10))
    store.workers.fleets.report(CPU)
    assert [one.name for one in store.cordons.workers()] == ["node:mine.2_1"]
