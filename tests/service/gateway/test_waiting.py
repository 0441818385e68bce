"""Workers that wait: woken for a shard, for other lanes, and when they leave; looked up once for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from assay.service.contract.limits import UNLIMITED
from assay.service.gateway.waiting import AT_ONCE, RoomLook, WaitingRoom, WorkerKind
from assay.service.store.store import Store
from assay.workers.identity import identity
from tests.support.jobs import planned

KIND = WorkerKind(identity()["digest"], ("cpu",), 1, (), (), "v1")


class Told:
    """A look that finds what it is told, and counts."""

    def __init__(self, state: str) -> None:
        self.state, self.kinds = state, list[Sequence[WorkerKind]]()

    def of(self, kinds: Sequence[WorkerKind]) -> dict[WorkerKind, str]:
        self.kinds.append(kinds)
        return dict.fromkeys(kinds, self.state)


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 30))


def test_hundred_workers_of_a_kind_are_one_look() -> None:
    async def wait() -> list[bool]:
        room, look = WaitingRoom(), Told("empty")
        waits = [room.wait(f"w{n}", KIND, 0.7, lambda: look) for n in range(100)]
        woken = await asyncio.gather(*waits)
        assert look.kinds
        assert all(kinds == [KIND] for kinds in look.kinds if kinds)
        assert room.is_empty(KIND)
        room.ring()
        assert not room.is_empty(KIND)
        return woken

    assert run(wait()) == [False] * 100


def test_a_shard_wakes_a_few_and_other_lanes_wake_everyone() -> None:
    async def wait(state: str) -> int:
        room, look, looked = WaitingRoom(), Told(state), asyncio.Event()

        def once() -> Told:
            if looked.is_set():
                look.state = "empty"
            looked.set()
            return look

        waits = [room.wait(f"w{n}", KIND, 1.4, once) for n in range(9)]
        return sum(await asyncio.gather(*waits))

    assert run(wait("claimable")) == AT_ONCE
    assert run(wait("changed")) == 9


def test_a_worker_that_leaves_is_let_go_without_a_claim() -> None:
    async def wait() -> bool:
        room, look = WaitingRoom(), Told("empty")
        waiting = asyncio.create_task(room.wait("me", KIND, 20.0, lambda: look))
        await asyncio.sleep(0)
        room.leave("another")
        room.leave("me")
        return await waiting

    assert run(wait()) is False


def test_a_look_knows_claimable_shards_and_lanes(store: Store) -> None:
    look = RoomLook(store, UNLIMITED, lambda: "v1")
    assert look.of([KIND]) == {KIND: "empty"}
    planned(store, 1)
    assert look.of([KIND]) == {KIND: "claimable"}
    other = WorkerKind(KIND.identity, ("cpu",), 1, (), (), "v0")
    assert look.of([other]) == {other: "changed"}
    assert look.of([]) == {}
