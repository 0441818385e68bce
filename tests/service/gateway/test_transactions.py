"""What a call of a fleet does in its transaction: a sign of life comes first, a void claim is not renewed."""

from __future__ import annotations

from functools import partial

import pytest

from assay.service.contract.fleet.worker_records import Gauges
from assay.service.gateway.transactions import WorkerStanding, WorkerTransactions
from assay.service.store.fleet.heartbeats import SignOfLife, sign_of_life
from assay.service.store.store import Store
from tests.support.jobs import add, claim, evaluate_spec, planned

CODE: Gauges = {"code": {"version": "1.2", "source_sha256": "own"}}


def of(store: Store) -> WorkerTransactions:
    return store.part(partial(WorkerTransactions, workers=store.workers))


def sign(identity: str = "i", gauges: Gauges = CODE) -> SignOfLife:
    return sign_of_life("pool:w", "host", ["cpu"], 1, gauges, 1, "pool:host:0", identity)


def standing(store: Store, identity: str = "i", *devices: str) -> WorkerStanding:
    return of(store).standing("pool:host:0", identity, devices or ["cpu"])


def test_a_worker_stands_as_the_parts_of_the_store_say(either_store: Store) -> None:
    store = either_store
    assert standing(store) == WorkerStanding(None, admitted=True, lanes=[], planning=False)
    store.identities.rule("i", "withdrawn", "ops")
    store.workers.beat("pool:w", "host", ["cpu"], 1, CODE, 1, "pool:host:0", "i")
    store.cordons.set("pool:host:0", drain=True, by_whom="ops")
    add(store, evaluate_spec(device="cuda"))
    assert store.shards.claim("w", ["cuda"], lease_seconds=60) is not None
    for devices in ("cpu",), ("cuda", "cpu"):
        found = standing(store, "i", *devices)
        assert found.cordon == store.cordons.of("pool:host:0")
        assert found.admitted is store.identities.admits("i") is False
        assert found.lanes == store.lanes.all()
        assert found.planning is store.shards.being_planned(devices) is ("cuda" in devices)


def test_a_sign_of_life_admits_its_worker_at_once(either_store: Store) -> None:
    store = either_store
    store.identities.declare({"version": "1.2", "source_sha256": "own"})
    assert not standing(store).admitted
    assert of(store).standing("pool:host:0", "i", ["cpu"], sign()).admitted
    assert store.workers.online("cpu", identity="i") == 1


CHANGES = ["cordon", "drain", "lift", "withdraw", "declare", "plan", "planned"]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_standing_changes_its_marks(either_store: Store, change: str) -> None:
    store = either_store
    store.workers.beat("pool:w", "host", ["cpu"], 1, CODE, 1, "pool:host:0", "i")
    add(store, evaluate_spec())
    if change in ("drain", "lift"):
        store.cordons.set("pool:host:0", drain=False, by_whom="ops")
    if change == "planned":
        held = claim(store, "pool:w")
    before = standing(store)
    assert of(store).lanes_and_marks() == (before.lanes, before.marks)
    if change in ("cordon", "drain"):
        store.cordons.set("pool:host:0", drain=change == "drain", by_whom="ops")
    elif change == "lift":
        store.cordons.lift("pool:host:0")
    elif change == "withdraw":
        store.identities.rule("i", "withdrawn", "ops")
    elif change == "declare":
        store.identities.declare({"version": "9", "source_sha256": "another"})
    elif change == "plan":
        claim(store, "pool:w")
    else:
        assert store.shards.release(held) is None
    after = standing(store)
    assert after != before
    assert after.marks != before.marks
    assert of(store).lanes_and_marks() == (after.lanes, after.marks)


@pytest.mark.parametrize("state", ["run", "cancel", "lost"])
def test_a_renewal_has_its_verdict_and_the_cordon(either_store: Store, state: str) -> None:
    store = either_store
    job_id = planned(store, 1)
    held = claim(store, "pool:w", lease_seconds=60)
    if state == "cancel":
        store.jobs.cancel(job_id)
    elif state == "lost":
        store.shards.release(held)
    assert of(store).renew(held, 900, "pool:host:0", sign()) == (state, None)
    assert store.workers.online("cpu") == 1, "the sign counts, whatever the claim"
    assert [row.lease_until is not None for row in store.shards.running()] == [True] * (state != "lost")
    cordoned = store.cordons.set("pool:host:0", drain=True, by_whom="ops").cordon
    assert of(store).renew(held, 900, "pool:host:0", sign()) == (state, cordoned)
