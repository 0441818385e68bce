"""Identities that may take work: declared by the service, allowed and withdrawn by administrators."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.fleet.worker_records import CodeProvenance
from assay.service.store.audit import Actor, AuditFilter
from assay.service.store.fleet.identities import ALLOWED, OWN, SETTING, WITHDRAWN, Refused
from assay.service.store.store import Store
from assay.service.store.transactions.standings import online_identities
from tests.support.jobs import WORKER, add, claim, evaluate_spec, planned

MINE, OTHER = "a1" * 8, "b2" * 8
OWN_CODE: CodeProvenance = {"version": "1.0", "commit": "c0ffee", "source_sha256": "ab" * 32}
OTHER_CODE: CodeProvenance = {"version": "1.0", "commit": "f00d", "source_sha256": "cd" * 32}


def beat(store: Store, worker: str, identity: str, code: CodeProvenance | None) -> None:
    gauges: Any = {} if code is None else {"code": code}
    store.workers.beat(worker, "box", ["cpu"], 1, gauges, 1, f"box:{worker}", identity)


def takes(store: Store, identity: str) -> bool:
    """Whether a worker of an identity gets a shard; it is given back."""
    found = store.shards.claim(WORKER, ["cpu"], lease_seconds=60, identity=identity)
    assert store.identities.admits(identity) == (found is not None)
    if found is not None:
        store.shards.release(found)
    return found is not None


@pytest.fixture
def fleet(store: Store) -> Store:
    """A worker of the service's release and one of another source; a job that waits."""
    beat(store, "mine", MINE, OWN_CODE)
    beat(store, "other", OTHER, OTHER_CODE)
    add(store, evaluate_spec())
    return store


def test_without_a_declaration_any_worker_takes_work(fleet: Store) -> None:
    assert takes(fleet, MINE)
    assert takes(fleet, OTHER)
    assert takes(fleet, "")
    assert fleet.workers.refused() == {}
    assert fleet.workers.online("cpu") == 2


def test_once_a_release_is_declared_others_take_no_shard_of_any_kind(fleet: Store) -> None:
    theirs = planned(fleet, 1, planned_by=OTHER)
    fleet.identities.declare(OWN_CODE)
    assert takes(fleet, MINE)
    assert not takes(fleet, OTHER)
    assert not takes(fleet, "")
    assert not fleet.shards.claimable(["cpu"], identity=OTHER)
    assert claim(fleet, identity=MINE).job_id != theirs, "it is planned by the other"
    assert fleet.workers.online("cpu") == 1
    assert fleet.workers.online("cpu", identity=OTHER) == 0
    assert fleet.workers.online("cpu", cordoned=True) == 2, "its box is alive"
    assert fleet.workers.refused() == {OTHER: Refused("version 1.0, commit f00d", False, 1)}
    listed = {one.name: (one.identity, one.standing) for one in fleet.cordons.workers()}
    assert listed == {"box:mine": (MINE, ""), "box:other": (OTHER, "unknown")}
    seen = {row.worker: (row.in_service, row.unknown) for row in fleet.online_workers()}
    assert seen == {"mine": (True, False), "other": (False, True)}


def test_other_packages_of_the_same_source_are_of_the_release(fleet: Store) -> None:
    """As `assay worker` in an environment of its own."""
    fleet.identities.declare(OWN_CODE)
    assert not takes(fleet, "c3" * 8), "no worker has said what its code is"
    beat(fleet, "textattack", "c3" * 8, OWN_CODE)
    assert takes(fleet, "c3" * 8)


def test_a_worker_that_does_not_say_its_release_is_unknown_until_it_is_allowed(fleet: Store) -> None:
    fleet.identities.declare(OWN_CODE)
    beat(fleet, "older", "d4" * 8, None)
    assert not takes(fleet, "d4" * 8)
    assert fleet.workers.refused()["d4" * 8] == Refused("an earlier version", False, 1)
    assert fleet.workers.online("cpu") == 1
    fleet.identities.rule("d4" * 8, ALLOWED, "ops")
    assert takes(fleet, "d4" * 8)
    assert fleet.workers.online("cpu") == 2


def test_an_allowed_identity_takes_work_until_it_is_withdrawn(fleet: Store) -> None:
    fleet.identities.declare(OWN_CODE)
    by = Actor(tenant="ops", key="k")
    allowed = fleet.identities.rule(OTHER, ALLOWED, "ops", by)
    assert (allowed.name, allowed.verdict, allowed.by_whom, allowed.workers) == (OTHER, "allowed", "ops", 1)
    assert takes(fleet, OTHER)
    assert fleet.workers.online("cpu") == 2
    assert fleet.identities.rule(OTHER, WITHDRAWN, "ops", by).verdict == "withdrawn"
    assert not takes(fleet, OTHER)
    assert fleet.workers.refused() == {OTHER: Refused("version 1.0, commit f00d", True, 1)}
    entries = fleet.audit.page(AuditFilter())[0]
    assert [(one.action, one.object) for one in entries] == [
        ("worker.withdraw", OTHER),
        ("worker.allow", OTHER),
    ]


def test_withdrawing_holds_for_the_services_own_release_and_without_a_declaration(fleet: Store) -> None:
    fleet.identities.rule(MINE, WITHDRAWN, "ops")
    assert not takes(fleet, MINE)
    fleet.identities.declare(OWN_CODE)
    assert not takes(fleet, MINE)
    fleet.identities.rule(MINE, ALLOWED, "ops")
    assert takes(fleet, MINE)


def test_a_shard_that_runs_is_finished(fleet: Store) -> None:
    held = claim(fleet, identity=OTHER)
    fleet.identities.rule(OTHER, WITHDRAWN, "ops")
    assert fleet.shards.renew(held, 60) == "run"


def test_the_next_start_replaces_what_is_declared_and_keeps_what_administrators_said(fleet: Store) -> None:
    fleet.identities.declare(OWN_CODE, ["e5" * 8, "f6" * 8])
    told = {one.name: (one.verdict, one.by_whom) for one in fleet.identities.all()}
    assert told == {
        "ab" * 32: ("declared", f"{OWN}, version 1.0, commit c0ffee"),
        "e5" * 8: ("declared", SETTING),
        "f6" * 8: ("declared", SETTING),
    }
    assert takes(fleet, "e5" * 8), "for an upgrade: before any worker of it has started"
    fleet.identities.rule("e5" * 8, WITHDRAWN, "ops")
    fleet.identities.rule(MINE, ALLOWED, "ops")
    fleet.identities.declare(OTHER_CODE, ["e5" * 8])
    verdicts = {one.name: (one.verdict, one.workers) for one in fleet.identities.all()}
    assert verdicts == {
        MINE: ("allowed", 1),
        "cd" * 32: ("declared", 1),
        "e5" * 8: ("withdrawn", 0),
    }
    assert [takes(fleet, one) for one in (MINE, OTHER, "e5" * 8, "f6" * 8)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("release", "takers"),
    [
        ({"version": "1.0", "commit": "c0ffee"}, [True, False]),
        ({"version": "1.0", "commit": None}, [True, True]),
        ({"version": "2.0", "commit": None}, [False, False]),
        ({"version": None, "commit": None}, [True, True]),
    ],
)
def test_a_service_without_its_whole_source_declares_its_commit_or_version(
    fleet: Store, release: Any, takers: list[bool]
) -> None:
    fleet.identities.declare(release)
    assert [takes(fleet, MINE), takes(fleet, OTHER)] == takers


def test_work_for_unknown_workers_holds_up_no_clock(fleet: Store) -> None:
    """A tenant is backlogged only where a worker online may claim."""
    theirs = planned(fleet, 1, planned_by=OTHER)
    for declared, online in ((False, [MINE, OTHER]), (True, [MINE])):
        if declared:
            fleet.identities.declare(OWN_CODE)
        with fleet._database.reading() as connection:
            assert online_identities(connection) == online
        assert fleet.workers.blocked(theirs, "cpu", 1, OTHER).workers == (OTHER in online)
