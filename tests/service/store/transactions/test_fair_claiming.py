"""Fair claiming between tenants on a real store; `test_fair_queue` tries many more cases without one."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select, update

from assay.service.contract.limits import Limits
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.service.store.tables import shards
from assay.service.store.tenant_tables import accounts, tenants
from assay.service.store.transactions.claim import Claimer, candidate, take
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import claim, evaluate_spec, outcome, plan
from tests.support.simulation import Simulation, submit_many

LENGTH = 100.0


def weigh(store: Store, **weights: float) -> None:
    with store._database.writing() as connection:
        for name, weight in weights.items():
            connection.execute(tenants.insert().values(name=name, weight=weight, updated_at=0.0))


def constant(tenant: str, held: Claim) -> float:
    return LENGTH


def shares(simulation: Simulation, begin: float, end: float) -> dict[str, float]:
    got = simulation.got(begin, end)
    return {tenant: seconds / sum(got.values()) for tenant, seconds in got.items()}


def charged(store: Store) -> dict[tuple[str, str], float]:
    with store._database.reading() as connection:
        rows = connection.execute(select(accounts.c.tenant, accounts.c.pool, accounts.c.seconds)).all()
    return {(row.tenant, row.pool): row.seconds for row in rows}


@pytest.mark.costly
def test_a_small_job_starts_within_two_shards_behind_a_thousand(store: Store) -> None:
    """And from then on both have half of the workers."""
    submit_many(store, "alice", 1000)
    simulation = Simulation(store, 4, constant)
    simulation.run(3 * LENGTH)
    small = submit_many(store, "bob", 1)[0]
    begun = simulation.now
    while small not in {one.job for one in simulation.runs}:
        assert simulation.step()
    run = next(one for one in simulation.runs if one.job == small)
    assert run.begin - begun <= 2 * LENGTH
    submit_many(store, "bob", 40)
    begun = simulation.now
    simulation.run(begun + 11 * LENGTH)
    found = shares(simulation, begun + LENGTH, begun + 11 * LENGTH)
    assert found == pytest.approx({"alice": 0.5, "bob": 0.5}, rel=0.1)


@pytest.mark.costly
@pytest.mark.parametrize("weights", [{"alice": 1, "bob": 3}, {"alice": 1, "bob": 1, "carol": 2}])
def test_tenants_get_their_weights_share(store: Store, weights: dict[str, float]) -> None:
    weigh(store, **weights)
    for tenant in weights:
        submit_many(store, tenant, 80)
    draw = random.Random(1)
    simulation = Simulation(store, 8, lambda tenant, held: LENGTH * draw.uniform(0.8, 1.2))
    simulation.run(10 * LENGTH)
    total = sum(weights.values())
    found = shares(simulation, 0, 10 * LENGTH)
    assert found == pytest.approx({name: weight / total for name, weight in weights.items()}, rel=0.1)


@pytest.mark.costly
def test_a_tenant_that_joins_late_has_neither_credit_nor_debt(store: Store) -> None:
    submit_many(store, "alice", 200)
    simulation = Simulation(store, 4, constant)
    simulation.run(12 * LENGTH)
    submit_many(store, "bob", 100)
    begun = simulation.now
    simulation.run(begun + 12 * LENGTH)
    assert shares(simulation, begun + LENGTH, simulation.now) == pytest.approx(
        {"alice": 0.5, "bob": 0.5}, rel=0.1
    )


def test_who_used_idle_workers_alone_owes_nothing_for_it(store: Store) -> None:
    """One long shard while there was no queue: afterwards both begin at the same point."""
    submit_many(store, "alice", 1)
    simulation = Simulation(store, 2, lambda tenant, held: 40 * LENGTH)
    simulation.claim_all()
    simulation.wait(30 * LENGTH)
    store.shards.keep_time(["cpu"])
    submit_many(store, "alice", 60)
    submit_many(store, "bob", 60)
    simulation._seconds = constant
    begun = simulation.now
    simulation.run(begun + 20 * LENGTH)
    assert shares(simulation, begun, simulation.now)["alice"] >= 0.4


@pytest.mark.costly
def test_a_tenant_whose_shards_cost_more_than_planned_gets_no_more(store: Store) -> None:
    """Planned are 2.5 s for each; those of one tenant take twenty-four times as long."""
    actual = {"alice": 60.0, "bob": 20.0}
    for tenant in actual:
        submit_many(store, tenant, 1, "evaluate")
    simulation = Simulation(
        store,
        2,
        lambda tenant, held: 1.0 if held.kind == "plan" else actual[tenant],
        cut=lambda tenant: plan({"alice": 40, "bob": 120}[tenant]),
    )
    simulation.run(1800)
    assert shares(simulation, 0, 1800) == pytest.approx({"alice": 0.5, "bob": 0.5}, rel=0.1)


def test_priority_orders_the_jobs_of_one_tenant_only(store: Store) -> None:
    low = submit_many(store, "alice", 1, priority=0)[0]
    high = submit_many(store, "bob", 3, priority=9)
    urgent = submit_many(store, "alice", 1, priority=9)[0]
    taken = [claim(store).job_id for _ in range(5)]
    assert taken[:2] == [urgent, high[0]] or taken[:2] == [high[0], urgent]
    assert taken.index(low) < taken.index(high[2])


def test_a_warm_job_is_preferred_for_two_shards_beyond_its_turn(store: Store) -> None:
    warm = submit_many(store, "alice", 1, "evaluate")[0]
    planning = claim(store)
    assert store.shards.finish_plan(planning, plan(6))
    other = submit_many(store, "bob", 2)
    order = [claim(store, warm_job=warm, warm_shards=streak).job_id for streak in range(3)]
    assert order == [warm, warm, other[0]]


def test_a_tenant_stays_with_its_warm_job_on_its_turn(store: Store) -> None:
    first, second = submit_many(store, "alice", 2, "evaluate")
    planning = [claim(store), claim(store)]
    assert all(store.shards.finish_plan(held, plan(2)) for held in planning)
    assert claim(store, warm_job=second, warm_shards=7).job_id == second
    assert claim(store).job_id == first


def test_each_class_of_devices_is_shared_by_itself(store: Store) -> None:
    """Who fills the GPU workers still has half of those without."""
    submit_many(store, "alice", 20, device="cuda")
    gpu = Simulation(store, 2, constant, classes=("cuda", "cpu"))
    gpu.run(5 * LENGTH)
    submit_many(store, "alice", 40, device="cpu")
    submit_many(store, "bob", 40, device="cpu")
    cpu = Simulation(store, 2, constant)
    cpu.run(12 * LENGTH)
    assert shares(cpu, 0, 12 * LENGTH) == pytest.approx({"alice": 0.5, "bob": 0.5}, rel=0.1)
    assert charged(store).keys() == {("alice", "cuda"), ("alice", "cpu"), ("bob", "cpu")}


@pytest.mark.parametrize(
    "end",
    [
        lambda store, held: store.shards.finish(held, outcome(held)),
        lambda store, held: store.shards.fail(held, "x", "x", retry=True),
        lambda store, held: store.shards.fail(held, "x", "x", retry=False),
        lambda store, held: store.shards.release(held),
        lambda store, held: store.shards.expire(dead_owners=[held.worker]),
    ],
    ids=["finished", "failed", "failed for good", "released", "its worker died"],
)
def test_a_claim_is_charged_once_however_it_ends(store: Store, end: Callable[[Store, Claim], object]) -> None:
    submit_many(store, "alice", 1)
    held = claim(store)
    with store._database.writing() as connection:
        past = update(shards).where(shards.c.state == "running")
        connection.execute(past.values(claimed_at=shards.c.claimed_at - 50))
    for _ in range(2):
        end(store, held)
        assert charged(store)["alice", "cpu"] == pytest.approx(50, abs=5)


def test_what_a_dead_worker_held_is_charged_until_its_lease_ended(store: Store) -> None:
    submit_many(store, None, 1)
    claim(store, lease_seconds=10)
    with store._database.writing() as connection:
        past = {"claimed_at": shards.c.claimed_at - 500, "lease_until": shards.c.lease_until - 500}
        connection.execute(update(shards).values(past))
    assert store.shards.expire() == 1
    assert charged(store) == {("", "cpu"): pytest.approx(10, abs=2)}


def test_deleting_a_failed_job_does_not_delete_what_it_used(store: Store) -> None:
    job_id = submit_many(store, "alice", 1, "evaluate")[0]
    assert store.shards.finish_plan(claim(store), plan(2))
    claim(store)
    with store._database.writing() as connection:
        connection.execute(update(shards).values(claimed_at=shards.c.claimed_at - 50))
    store.jobs.fail(job_id, "x", "x")
    store.jobs.delete(job_id)
    assert charged(store)["alice", "cpu"] == pytest.approx(50, abs=5)


@ALWAYS_ON_BOTH
def test_running_shards_are_limited_also_among_claimers_at_once(store: Store) -> None:
    submit_many(store, "alice", 20)
    limits = Limits(running_shards=3)

    def take(number: int) -> Claim | None:
        return store.shards.claim(f"w{number}", ["cpu"], lease_seconds=60, limits=limits)

    with ThreadPoolExecutor(8) as pool:
        found = [held for held in pool.map(take, range(8)) if held is not None]
    assert len(found) == 3
    assert not store.shards.claimable(["cpu"], limits=limits)
    submit_many(store, "bob", 1)
    assert take(9) is not None
    assert store.shards.finish(found[0], outcome(found[0])) is not None
    assert take(10) is not None
    assert take(11) is None


def test_claimers_that_read_the_same_moment_do_not_pass_the_limit(store: Store) -> None:
    submit_many(store, "alice", 1, "evaluate")
    assert store.shards.finish_plan(claim(store), plan(6))
    limits, claimer = Limits(running_shards=2), Claimer("w", ["cpu"])
    with store._database.reading() as connection:
        found = [candidate(connection, claimer, limits) for _ in range(4)]
    taken = 0
    for one in found:
        assert one is not None
        with store._database.writing() as connection:
            taken += take(connection, one, claimer, 60) is not None
    assert taken == 2


def test_the_seconds_of_a_day_are_limited_and_the_next_day_is_a_new_one(store: Store) -> None:
    submit_many(store, "alice", 5)
    limits = Limits(cpu_seconds=150, gpu_seconds=1)
    simulation = Simulation(store, 1, constant, limits=limits)
    simulation.run(10 * LENGTH)
    assert simulation.now == 2 * LENGTH
    assert not store.shards.claimable(["cpu"], limits=limits)
    with store._database.writing() as connection:
        connection.execute(update(accounts).values(day=accounts.c.day - 1))
    simulation.run(10 * LENGTH)
    assert simulation.now == 4 * LENGTH


@pytest.mark.costly
def test_a_blocked_tenant_has_no_credit_later(store: Store) -> None:
    weigh(store, alice=1, bob=1)
    with store._database.writing() as connection:
        connection.execute(update(tenants).where(tenants.c.name == "alice").values(cpu_seconds=1))
    submit_many(store, "alice", 60)
    submit_many(store, "bob", 120)
    simulation = Simulation(store, 2, constant)
    simulation.run(15 * LENGTH)
    assert shares(simulation, 2 * LENGTH, 15 * LENGTH)["bob"] == 1
    with store._database.writing() as connection:
        connection.execute(update(tenants).where(tenants.c.name == "alice").values(cpu_seconds=None))
    begun = simulation.now
    simulation.run(begun + 11 * LENGTH)
    found = shares(simulation, begun + LENGTH, simulation.now)
    assert found == pytest.approx({"alice": 0.5, "bob": 0.5}, rel=0.15)


def test_one_training_for_many_devices_counts_as_many(store: Store) -> None:
    spec = {"device": "auto", "dtype": "float32", "batch_size": "auto", "devices": 4}
    submit_many(store, "alice", 1, execution=spec)
    held = store.shards.claim("w", ["cpu"], lease_seconds=1000, devices=4)
    assert held is not None
    with store._database.writing() as connection:
        connection.execute(update(shards).values(claimed_at=shards.c.claimed_at - 100))
    assert store.shards.finish(held, outcome(held)) is not None
    assert charged(store)["alice", "cpu"] == pytest.approx(400, rel=0.05)


def test_jobs_without_tenant_are_one_tenant(store: Store) -> None:
    made = [store.jobs.add(evaluate_spec(), body_sha256="a")[0].id for _ in range(2)]
    submit_many(store, "alice", 2)
    taken = [claim(store).job_id for _ in range(4)]
    assert len(set(taken[:2]) & set(made)) == 1
