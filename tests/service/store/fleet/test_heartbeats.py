"""A sign of life writes what has changed: no row of a worker is older than what its last sign said."""

from __future__ import annotations

from contextlib import suppress

import pytest
from sqlalchemy import delete, event, literal, select, text, update
from sqlalchemy.exc import DBAPIError

from assay.service.contract.fleet.worker_records import Gauges
from assay.service.store.clock import now
from assay.service.store.fleet import heartbeats
from assay.service.store.fleet.heartbeats import (
    FORGOTTEN_SECONDS,
    SWEEP_SECONDS,
    Heartbeats,
    SignOfLife,
    sign_of_life,
)
from assay.service.store.store import Store, open_store
from assay.service.store.tables import workers

BIRDS: Gauges = {"staged": {"birds": "b" * 64}}
FISH: Gauges = {"staged": {"fish": "f" * 64}}


def sign(gauges: Gauges = BIRDS, worker: str = "w", devices: int = 1) -> SignOfLife:
    return sign_of_life(worker, "host", ["cpu"], 1, gauges, devices, "host:0", "")


def beat(store: Store, gauges: Gauges = BIRDS, devices: int = 1) -> None:
    store.workers.beat("w", "host", ["cpu"], 1, gauges, devices, "host:0")


def age(store: Store, seconds: float, worker: str = "w") -> None:
    with store._database.writing() as connection:
        connection.execute(update(workers).where(workers.c.worker == worker).values(seen_at=now() - seconds))


def said(store: Store) -> list[Gauges]:
    return [row.gauges for row in store.cordons.workers()]


def test_signs_of_two_processes_in_one_moment_are_told_apart(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a row is its version, and SQLite's clock has milliseconds."""
    monkeypatch.setattr(heartbeats, "now", lambda: literal(5.0))
    heartbeats._beaten.cache_clear()
    ours, theirs = Heartbeats(), Heartbeats()
    with store._database.writing() as connection:
        assert ours.write(connection, sign())
        assert theirs.write(connection, sign(FISH))
        assert ours.write(connection, sign())
    heartbeats._beaten.cache_clear()
    assert said(store) == [BIRDS]


def test_a_sign_that_says_the_same_writes_its_time_alone(store: Store) -> None:
    written: list[str] = []
    event.listen(store._database.engine, "before_cursor_execute", lambda *given: written.append(given[2]))
    beat(store)
    (before,) = store.cordons.workers()
    written.clear()
    beat(store)
    assert [text for text in written if "gauges" in text] == []
    (after,) = store.cordons.workers()
    assert after.seen_at is not None
    assert before.seen_at is not None
    assert after.seen_at >= before.seen_at
    assert after.gauges == BIRDS


@pytest.mark.parametrize("between", ["other gauges", "fewer devices", "another process", "gone", "older"])
def test_a_row_is_what_the_last_sign_said(store: Store, database_url: str, between: str) -> None:
    beat(store)
    if between == "other gauges":
        beat(store, FISH)
        assert said(store) == [FISH]
    elif between == "fewer devices":
        beat(store, devices=0)
        assert store.workers.online("cpu") == 0
    elif between == "another process":
        with open_store(database_url, migrate=False) as other:
            beat(other, FISH)
        assert said(store) == [FISH]
    elif between == "gone":
        store.workers.gone("w")
        assert said(store) == []
    else:
        age(store, 100)
        assert store.workers.online("cpu") == 0
    beat(store)
    assert said(store) == [BIRDS]
    assert store.workers.online("cpu") == 1


def test_gauges_that_change_in_place_are_written(store: Store) -> None:
    gauges: Gauges = {"staged": {}}
    beat(store, gauges)
    gauges["staged"]["fish"] = "f" * 64
    beat(store, gauges)
    assert said(store) == [FISH]


def test_a_transaction_that_was_rolled_back_is_not_believed(store: Store) -> None:
    beat(store, FISH)
    with suppress(RuntimeError), store._database.writing() as connection:
        store.workers.note(connection, sign())
        raise RuntimeError
    assert said(store) == [FISH]
    beat(store)
    assert said(store) == [BIRDS]


def test_what_was_said_needs_no_second_check(store: Store) -> None:
    known = store.workers.heartbeats
    assert not known.has_said(sign())
    beat(store)
    assert known.has_said(sign())
    assert not known.has_said(sign(FISH))
    assert not known.has_said(sign(worker="other"))
    assert not known.has_said(sign(devices=2))


def test_silent_workers_are_forgotten_after_a_day(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.workers.beat("old", "host", ["cpu"], 1)
    age(store, FORGOTTEN_SECONDS + 1, "old")
    beat(store)
    with store._database.reading() as connection:
        assert len(connection.execute(select(workers)).all()) == 2, "one look a minute"
    monkeypatch.setattr(store.workers.heartbeats, "_swept_at", float("-inf"))
    assert SWEEP_SECONDS < FORGOTTEN_SECONDS
    beat(store)
    with store._database.writing() as connection:
        assert connection.execute(select(workers.c.worker)).scalars().all() == ["w"]
        connection.execute(delete(workers))


@pytest.mark.parametrize("between", ["", "older", "another process", "gone", "gone elsewhere"])
def test_kept_signs_are_written_together(either_store: Store, database_url: str, between: str) -> None:
    store, known = either_store, either_store.workers.heartbeats
    for worker in ("w", "v"):
        store.workers.beat(worker, "host", ["cpu"], 1, BIRDS, 1, "host:0")
        known.keep(sign(worker=worker))
    if between == "older":
        age(store, 100)
    elif between == "another process":
        with store._database.writing() as connection:
            Heartbeats().write(connection, sign(FISH))
    elif between == "gone":
        store.workers.gone("w")
    elif between == "gone elsewhere":
        with store._database.writing() as connection:
            connection.execute(delete(workers).where(workers.c.worker == "w"))
    age(store, 90, "v")
    assert known.are_kept
    store.workers.write_kept()
    assert not known.are_kept
    assert store.workers.online("cpu") == (1 if "gone" in between else 2)
    assert said(store) == [BIRDS] * (1 if "gone" in between else 2)
    assert known.has_said(sign()) is ("gone" not in between), "a worker struck off says all again"


def test_signs_stay_kept_while_the_database_is_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    beat(store)
    store.workers.heartbeats.keep(sign())
    age(store, 100)
    with monkeypatch.context() as patch:
        patch.setattr(heartbeats, "KEPT", text("SELECT * FROM nothing"))
        with pytest.raises(DBAPIError):
            store.workers.write_kept()
    store.workers.write_kept()
    assert store.workers.online("cpu") == 1
