"""Workers that wait: woken for a shard, for other lanes, and when they leave; looked up once for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from assay.service.contract.errors import TooManyRequests, Unavailable
from assay.service.contract.limits import UNLIMITED
from assay.service.gateway.waiting import AT_ONCE, KINDS_OF_POOL, RoomLook, WaitingRoom, WorkerKind
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.store import Store
from assay.workers.identity import identity
from tests.support.jobs import planned

KIND = WorkerKind(identity()["digest"], ("cpu",), 1, (), (), "v1")
CHECKED = replace(KIND, device_classes=("checks",))


class Told:
    """A look that finds what it is told, and counts."""

    def __init__(self, state: str) -> None:
        self.state, self.kinds = state, list[Sequence[WorkerKind]]()

    def of(self, kinds: Sequence[WorkerKind]) -> dict[WorkerKind, str]:
        self.kinds.append(kinds)
        return dict.fromkeys(kinds, self.state)


async def stays() -> None:
    await asyncio.Event().wait()


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 30))


def test_hundred_workers_of_a_kind_are_one_look() -> None:
    async def wait() -> list[Any]:
        room, look = WaitingRoom(), Told("empty")
        waits = [room.wait(f"w{n}", KIND, 0.7, lambda: look, stays) for n in range(100)]
        woken = await asyncio.gather(*waits)
        assert look.kinds
        assert all(kinds == [KIND] for kinds in look.kinds if kinds)
        assert room.is_empty(KIND)
        room.ring()
        assert not room.is_empty(KIND)
        return woken

    assert run(wait()) == [None] * 100


@pytest.mark.costly
def test_a_shard_wakes_a_few_and_other_lanes_wake_everyone() -> None:
    async def wait(state: str) -> int:
        room, look, looked = WaitingRoom(), Told(state), asyncio.Event()

        def once() -> Told:
            if looked.is_set():
                look.state = "empty"
            looked.set()
            return look

        waits = [room.wait(f"w{n}", KIND, 1.4, once, stays) for n in range(9)]
        return [*await asyncio.gather(*waits)].count(KIND)

    assert run(wait("claimable")) == AT_ONCE
    assert run(wait("changed")) == 9


def test_a_worker_that_leaves_is_let_go_without_a_claim() -> None:
    async def wait() -> Any:
        room, look = WaitingRoom(), Told("empty")
        waiting = asyncio.create_task(room.wait("me", KIND, 20.0, lambda: look, stays))
        await asyncio.sleep(0)
        room.leave("another")
        room.leave("me")
        return await waiting

    assert run(wait()) is None


def test_a_look_knows_claimable_shards_and_lanes(store: Store) -> None:
    look = RoomLook(store, UNLIMITED, lambda: "v1")
    assert look.of([KIND]) == {KIND: "empty"}
    planned(store, 1)
    assert look.of([KIND]) == {KIND: "claimable"}
    other = WorkerKind(KIND.identity, ("cpu",), 1, (), (), "v0")
    assert look.of([other]) == {other: "changed"}
    assert look.of([]) == {}


def test_one_kinds_failure_is_not_the_others(either_store: Store) -> None:
    planned(either_store, 1)
    broken = replace(KIND, lanes=(Lane("cpu", "", "%(x)s"),))  # On PostgreSQL a name of a value
    found = RoomLook(either_store, UNLIMITED, lambda: "v1").of([broken, KIND])
    assert found[KIND] == "claimable"


@pytest.mark.parametrize("there", [KIND, CHECKED, None])
def test_a_worker_waits_for_another_of_its_node_too(there: WorkerKind | None) -> None:
    class Look:
        def of(self, kinds: Sequence[WorkerKind]) -> dict[WorkerKind, str]:
            assert set(kinds) <= {KIND, CHECKED}
            return {kind: "claimable" if kind == there else "empty" for kind in kinds}

    async def wait() -> Any:
        room = WaitingRoom()
        found = await room.wait("me", KIND, 60.0 if there else 0.7, Look, stays, CHECKED)  # type: ignore[arg-type]
        assert not room._waiting
        assert not room._of_worker
        assert not room._kinds
        return found

    assert run(wait()) == there


def test_a_worker_that_asks_again_waits_once() -> None:
    async def wait() -> tuple[Any, Any]:
        room, look = WaitingRoom(), Told("empty")
        first = asyncio.create_task(room.wait("me", KIND, 20.0, lambda: look, stays))
        await asyncio.sleep(0)
        second = asyncio.create_task(room.wait("me", KIND, 20.0, lambda: look, stays))
        earlier = await first
        look.state = "claimable"
        return earlier, await second

    assert run(wait()) == (None, KIND)


def test_a_client_that_leaves_is_not_woken_to_claim() -> None:
    async def wait() -> Any:
        room, look, closed = WaitingRoom(), Told("empty"), asyncio.Event()

        async def left() -> None:
            await closed.wait()

        waiting = asyncio.create_task(room.wait("me", KIND, 20.0, lambda: look, left))
        await asyncio.sleep(0)
        closed.set()
        return await waiting

    assert run(wait()) is None


def test_a_pools_waiting_workers_are_of_some_kinds() -> None:
    async def wait() -> None:
        room, look = WaitingRoom(), Told("empty")

        def ask(name: str, number: int) -> asyncio.Task[Any]:
            kind = replace(KIND, without=(str(number),))
            return asyncio.create_task(room.wait(name, kind, 20.0, lambda: look, stays))

        waits = [ask(f"pool:{number}", number) for number in range(KINDS_OF_POOL)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests, match=f"allowed: {KINDS_OF_POOL}"):
            await ask("pool:more", KINDS_OF_POOL)
        waits += [ask("pool:more", 0), ask("others:1", KINDS_OF_POOL)]
        await asyncio.sleep(0)
        for name in ("pool:0", "pool:more"):
            room.leave(name)
        waits.append(ask("pool:new", KINDS_OF_POOL))
        await asyncio.sleep(0)
        assert sum(wait.done() for wait in waits) == 0, "no wait is refused"
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    run(wait())


@pytest.mark.costly
def test_a_worker_that_took_nothing_rests_while_others_are_woken() -> None:
    async def wait(state: str) -> list[Any]:
        room, look = WaitingRoom(), Told(state)
        room.rest("short", KIND)
        return await asyncio.gather(
            *(room.wait(name, KIND, 1.2, lambda: look, stays) for name in ("short", "long"))
        )

    assert run(wait("claimable")) == [None, KIND]
    assert run(wait("changed")) == [KIND, KIND]


def test_a_stop_of_the_service_ends_every_wait_with_an_error_of_ours() -> None:
    async def wait() -> None:
        room, look, others = WaitingRoom(), Told("empty"), asyncio.all_tasks()
        waits = [asyncio.create_task(room.wait(f"w{n}", KIND, 60, lambda: look, stays)) for n in range(3)]
        await asyncio.sleep(0)
        await room.close()
        for ended in (*waits, asyncio.create_task(room.wait("late", KIND, 60, lambda: look, stays))):
            with pytest.raises(Unavailable, match="the service stops"):
                await ended
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == others, "no look is left"

    run(wait())
