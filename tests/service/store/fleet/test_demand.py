"""Queued shards as demand: other code and limits of tenants are no work for workers that start now."""

from __future__ import annotations

import pytest

from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.store.fleet.demand import Demand, demand_of
from assay.service.store.store import Store
from tests.support.jobs import add, claim, evaluate_spec, plan, planned

SOURCE, NEW_SOURCE = "a" * 64, "b" * 64


def demand(store: Store, code: str | None = "", limits: Limits = UNLIMITED) -> Demand:
    with store._database.reading() as connection:
        return demand_of(connection, "cpu", 1, code, limits)


def planned_from(store: Store, source: str, count: int) -> None:
    """A job whose planner, gone by now, had this source."""
    add(store, evaluate_spec())
    written = plan(count, planned_by="1d")
    written["identity"]["source_sha256"] = source
    assert store.shards.finish_plan(claim(store), written)


@pytest.mark.parametrize(
    ("code", "found"),
    [("", Demand(6, 0)), ("1d", Demand(4, 2)), ("0ther", Demand(3, 3)), (None, Demand(0, 6))],
)
def test_planned_shards_are_for_the_code_of_their_planner(
    store: Store, code: str | None, found: Demand
) -> None:
    planned(store, 1, planned_by="1d")
    planned(store, 2, planned_by="2d")
    for _ in range(3):
        add(store, evaluate_spec())
    assert demand(store, code) == found


def test_shards_of_another_release_are_withheld_though_no_worker_is_left(store: Store) -> None:
    planned_from(store, SOURCE, 3)
    assert demand(store) == Demand(3, 0), "nothing is declared"
    store.identities.declare({"version": "1", "commit": None, "source_sha256": SOURCE})
    assert demand(store) == Demand(3, 0), "workers of the planner's release are to come again"
    store.identities.declare({"version": "2", "commit": None, "source_sha256": NEW_SOURCE})
    assert demand(store) == Demand(0, 3)
    assert store.overview().shards == {("cpu", "withheld"): 3}
    store.identities.rule("1d", "allowed", "an operator")
    assert demand(store) == Demand(3, 0)
    assert store.overview().shards == {("cpu", "queued"): 3}
    store.identities.rule("1d", "withdrawn", "an operator")
    assert demand(store) == Demand(0, 3)


def test_a_service_that_does_not_know_its_source_withholds_nothing(store: Store) -> None:
    planned_from(store, SOURCE, 3)
    store.identities.declare({"version": "2", "commit": "c" * 40})
    assert demand(store) == Demand(3, 0)


def test_limits_of_tenants_hold_shards_back(store: Store) -> None:
    planned(store, 5)
    claim(store)
    assert demand(store, limits=Limits(running_shards=3)) == Demand(2, 2)
    assert demand(store, limits=Limits(running_shards=1)) == Demand(0, 4)
    assert demand(store, limits=Limits(running_shards=9)) == Demand(4, 0)
