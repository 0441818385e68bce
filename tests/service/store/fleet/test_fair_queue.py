"""The scheduler as arithmetic: random tenants, weights, lengths and estimates, and a model of workers."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.service.store.fleet.fair_queue import (
    WARM_SHARDS,
    Standing,
    before,
    clock_after,
    expected_seconds,
    in_turn,
    pool_of,
)

Length = Callable[[str], float]


class Model:
    """Workers and tenants without a database; it keeps the books as `transactions.standings` does."""

    def __init__(
        self, workers: int, weights: Mapping[str, float], length: Length, expected: Mapping[str, float]
    ) -> None:
        self.now, self.clock = 0.0, 0.0
        self.queued: dict[str, int] = dict.fromkeys(weights, 0)
        self.runs: list[tuple[str, float, float]] = []
        self.idle = list(range(workers))
        self.busy: list[tuple[float, int, float, str]] = []
        self._weights, self._length, self._expected = weights, length, expected
        self._virtual: dict[str, float] = dict.fromkeys(weights, 0.0)
        self._warm: dict[int, tuple[str, int]] = {}

    def standings(self) -> list[Standing]:
        found = []
        for tenant, weight in self._weights.items():
            had = [self.now - begin for _, _, begin, owner in self.busy if owner == tenant]
            ahead = sum(max(0.0, self._expected[tenant] - seconds) for seconds in had)
            backlogged = self.queued[tenant] > 0
            found.append(Standing(tenant, weight, self._virtual[tenant], sum(had), ahead, backlogged))
        return found

    def claim_all(self) -> None:
        for worker in list(self.idle):
            standings = self.standings()
            clock = clock_after(self.clock, standings, max(self._virtual.values()))
            assert clock >= self.clock
            self.clock = clock
            turns = in_turn(clock, standings)
            if not turns:
                # Work conserving: an idle worker means that nothing is claimable.
                assert not any(self.queued.values())
                return
            chosen = turns[0]
            warm, streak = self._warm.get(worker, ("", 0))
            if streak < WARM_SHARDS:
                chosen = next((one for one in turns if one.tenant == warm), chosen)
            self._warm[worker] = (chosen.tenant, streak + 1 if chosen.tenant == warm else 1)
            lifted = chosen.lifted(clock)
            if lifted is not None:
                self._virtual[chosen.tenant] = max(self._virtual[chosen.tenant], lifted)
            self.queued[chosen.tenant] -= 1
            self.idle.remove(worker)
            end = self.now + self._length(chosen.tenant)
            heapq.heappush(self.busy, (end, worker, self.now, chosen.tenant))

    def step(self) -> bool:
        self.claim_all()
        if not self.busy:
            return False
        end, worker, begin, tenant = heapq.heappop(self.busy)
        self.now = end
        self._virtual[tenant] += (end - begin) / self._weights[tenant]
        self.runs.append((tenant, begin, end))
        self.idle.append(worker)
        return True

    def run(self, until: float) -> None:
        while self.now < until and self.step():
            pass

    def shares(self, begin: float, end: float) -> dict[str, float]:
        runs = self.runs + [(tenant, start, stop) for stop, _, start, tenant in self.busy]
        got: dict[str, float] = defaultdict(float)
        for tenant, start, stop in runs:
            got[tenant] += max(0.0, min(stop, end) - max(start, begin))
        return {tenant: seconds / sum(got.values()) for tenant, seconds in got.items()}


def exact(lengths: Mapping[str, float], seed: int = 0) -> Length:
    draw = random.Random(seed)
    return lambda tenant: lengths[tenant] * draw.uniform(0.8, 1.2)


@pytest.mark.sampled
@pytest.mark.parametrize("workers", [1, 6])
@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 1, "b": 3}, {"a": 1, "b": 2, "c": 5}], ids=str)
@pytest.mark.parametrize("lengths", [(100, 100, 100), (240, 30, 90), (20, 400, 60)], ids=str)
@pytest.mark.parametrize("wrong", [1.0, 0.1, 10.0], ids=["right", "too low", "too high"])
def test_shares_are_those_of_the_weights(
    workers: int, weights: dict[str, float], lengths: tuple[float, ...], wrong: float
) -> None:
    """Whatever the shards' lengths, and however wrong the estimates of the first tenant's are."""
    actual = dict(zip("abc", lengths, strict=True))
    expected = {**actual, "a": actual["a"] * wrong}
    model = Model(workers, weights, exact(actual), expected)
    model.queued = dict.fromkeys(weights, 10**9)
    horizon = 120 * max(lengths) / workers**0.5
    model.run(horizon)
    total = sum(weights.values())
    wanted = {tenant: weight / total for tenant, weight in weights.items()}
    assert model.shares(0.2 * horizon, horizon) == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("alone", [10, 200])
def test_idleness_gives_no_credit(alone: int) -> None:
    """A tenant that comes late, or comes back, has its share from then on and no more."""
    model = Model(4, {"a": 1, "b": 1}, exact({"a": 100, "b": 100}), {"a": 100, "b": 100})
    model.queued["a"] = 10**9
    for number in range(1, 4):
        model.run(model.now + 100 * alone)
        model.queued["b"] = 40
        begun = model.now
        model.run(begun + 1500)
        assert model.shares(begun + 200, begun + 1500) == pytest.approx({"a": 0.5, "b": 0.5}, rel=0.1), number
        model.queued["b"] = 0


def test_use_of_workers_that_others_do_not_want_costs_nothing_later() -> None:
    model = Model(2, {"a": 1, "b": 1}, exact({"a": 100, "b": 100}), {"a": 100, "b": 100})
    model.queued["a"] = 100
    while model.step():
        pass
    model.claim_all()  # an idle worker polls
    model.queued = {"a": 100, "b": 100}
    begun = model.now
    model.run(begun + 1500)
    assert model.shares(begun, begun + 1500) == pytest.approx({"a": 0.5, "b": 0.5}, rel=0.1)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_tenant_starves_and_no_worker_idles(data: st.DataObject) -> None:
    """Any tenants, weights, lengths and wrong estimates; work comes at any time."""
    names = "abcde"[: data.draw(st.integers(1, 5), label="tenants")]
    weights = {name: data.draw(st.floats(0.1, 10), label=f"weight {name}") for name in names}
    actual = {name: data.draw(st.floats(1, 500), label=f"length {name}") for name in names}
    expected = {name: data.draw(st.floats(0, 1000), label=f"estimate {name}") for name in names}
    workers = data.draw(st.integers(1, 8), label="workers")
    model = Model(workers, weights, exact(actual), expected)
    for _ in range(data.draw(st.integers(1, 6), label="arrivals")):
        name = data.draw(st.sampled_from(names), label="who")
        count = data.draw(st.integers(1, 30), label="how many")
        newcomer = model.queued[name] == 0 and all(owner != name for _, _, _, owner in model.busy)
        model.queued[name] += count
        begun = len(model.runs)
        for _ in range(data.draw(st.integers(0, 60), label="steps")):
            model.step()
        # Each worker may end what it runs and `WARM_SHARDS` more before a newcomer's first shard.
        if newcomer and len(model.runs) - begun > workers * (WARM_SHARDS + 1) * len(names) * 2:
            assert any(owner == name for owner, _, _ in model.runs[begun:]) or any(
                owner == name for _, _, _, owner in model.busy
            )
    queued = sum(model.queued.values())
    for _ in range(queued + workers):
        model.step()
    assert not any(model.queued.values())


def test_the_first_shard_of_a_newcomer_waits_for_two_shards_at_most() -> None:
    for workers in (1, 2, 8):
        model = Model(workers, {"a": 1, "b": 1}, lambda tenant: 100.0, {"a": 100, "b": 100})
        model.queued["a"] = 1000
        model.run(1000)
        model.queued["b"] = 1
        begun = model.now
        while model.queued["b"]:
            model.step()
        assert model.now - begun <= 200


def test_ties_go_to_the_older_job_and_blocked_tenants_have_no_turn() -> None:
    old, young = Standing("z", oldest="1"), Standing("a", oldest="2")
    blocked = Standing("b", backlogged=False)
    assert in_turn(0, [young, blocked, old]) == [old, young]
    assert clock_after(5, [Standing("a", virtual=9), Standing("b", virtual=7)]) == 7
    assert clock_after(8, [Standing("a", virtual=9), Standing("b", virtual=7)]) == 8
    assert clock_after(5, [blocked], 30) == 30


def test_estimates_and_pools() -> None:
    assert expected_seconds("evaluate", 12.5) == 12.5
    assert expected_seconds("plan", 0.0) < expected_seconds("train", 0.0)
    assert (pool_of(["cpu"]), pool_of(["cpu", "cuda"])) == ("cpu", "cuda")


def test_the_shards_before_a_tenant_are_counted_by_their_weights() -> None:
    ahead = Standing("a", virtual=1000)
    others = [Standing("b", virtual=0), Standing("c", weight=2, virtual=0)]
    assert before(0, [ahead, *others], "a", 100) == 11 + 21
    assert before(0, [ahead, *others], "b", 100) == 0
    assert before(500, others, "new", 100) == 0


@pytest.mark.parametrize(
    ("standing", "clock", "lifted"),
    [
        (Standing("a", virtual=0, running=4, weight=2), 10.0, 8.0),
        (Standing("a", virtual=3), 10.0, 10.0),
        (Standing("a", virtual=9, running=4, weight=2), 10.0, None),
    ],
)
def test_who_returns_from_idleness_starts_at_the_clock_with_what_runs_counted_once(
    standing: Standing, clock: float, lifted: float | None
) -> None:
    assert standing.lifted(clock) == lifted
    if lifted is not None:
        assert replace(standing, virtual=lifted).reached == clock
