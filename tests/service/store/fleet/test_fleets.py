"""Fleets: their last reports, and the work that there is for them."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from assay.service.store.fleet.fleets import HEARD_SECONDS, Fleet
from assay.service.store.store import Store
from assay.service.store.tables import fleets
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
