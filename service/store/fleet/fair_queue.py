"""Whose shard is claimed next: start-time fair queuing over device-seconds, as plain arithmetic.

A tenant's virtual time in a pool of workers is its device-seconds there, divided by its weight. The tenant
furthest behind comes next, counting what its running shards are still expected to take. The pool's clock is
the virtual time of the backlogged tenant furthest behind; it never goes back, and a tenant that returns from
idleness starts at the clock. While no tenant is backlogged, the clock is at the tenant furthest ahead: idle
workers cost nothing later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Seconds of shards that no plan has measured; measured seconds replace them.
STATED_SECONDS = {"plan": 30.0, "train": 600.0, "check": 10.0}
WARM_SHARDS = 2  # Shards of its warm job that a worker may run in a row in another tenant's turn.
CLOCK_STEP = 1.0  # in virtual seconds; smaller changes of the clock are not written


CHECKS = "checks"  # Device class of checks of uploads: their own workers, so that neither waits.


def pool_of(device_classes: Sequence[str]) -> str:
    """The pool of a worker with these device classes: "cuda", "cpu" without a GPU, or "checks"."""
    if tuple(device_classes) == (CHECKS,):
        return CHECKS
    return "cuda" if "cuda" in device_classes else "cpu"


class Lane(NamedTuple):
    """A shard's place: its device, and what its worker must have, empty for anything."""

    device: str  # device class, "auto" or `CHECKS`
    identity: str = ""  # of the worker
    requirements: str = ""  # digest of the other requirements (`lanes`)


def lanes_of(
    device_classes: Sequence[str], identities: Sequence[str] = (), opened: Sequence[Lane] = ()
) -> tuple[Lane, ...]:
    """Places of the shards that workers with these device classes may claim."""
    checks = tuple(device_classes) == (CHECKS,)
    devices = (CHECKS,) if checks else ("auto", *device_classes)
    # A plan names the device: no planned shard is for "auto".
    planned = [] if checks else [Lane(device, one) for device in device_classes for one in identities if one]
    mine = [lane for lane in opened if lane.device in devices and lane.identity in ("", *identities)]
    return (*map(Lane, devices), *planned, *mine)


def expected_seconds(kind: str, cost: float) -> float:
    """Expected seconds of a shard; `cost` is the plan's estimate, in seconds."""
    return STATED_SECONDS.get(kind, max(cost, 0.0))


@dataclass(frozen=True)
class Standing:
    """A tenant in one pool, at one moment."""

    tenant: str
    weight: float = 1.0
    virtual: float = 0.0  # device-seconds of its ended shards, each divided by the weight at its end
    running: float = 0.0  # device-seconds that its running shards have had so far
    ahead: float = 0.0  # device-seconds that they are still expected to take
    backlogged: bool = True  # whether it has a shard that could be claimed now, within its limits
    oldest: str = ""  # its first claimable job, which breaks ties

    @property
    def reached(self) -> float:
        """Its virtual time, running shards included."""
        return self.virtual + self.running / self.weight

    def due(self, clock: float) -> float:
        """Virtual time at which its next shard starts; the smallest is next."""
        return max(self.reached, clock) + self.ahead / self.weight

    def lifted(self, clock: float) -> float | None:
        """What a claim raises `virtual` to, so that idleness gives no credit; None for no change."""
        return None if self.reached >= clock else clock - self.running / self.weight


def in_turn(clock: float, standings: Iterable[Standing]) -> list[Standing]:
    """The backlogged tenants in the order of service."""
    backlogged = [one for one in standings if one.backlogged]
    return sorted(backlogged, key=lambda one: (one.due(clock), one.oldest, one.tenant))


def clock_after(clock: float, standings: Iterable[Standing], ahead_of_all: float = 0.0) -> float:
    """The pool's clock now."""
    standings = list(standings)
    waiting = [one.reached for one in standings if one.backlogged]
    if waiting:
        return max(clock, min(waiting))
    return max([clock, ahead_of_all, *(one.reached for one in standings)])


def before(clock: float, standings: Sequence[Standing], tenant: str, shard_seconds: float) -> int:
    """About how many shards of others are claimed before the tenant's next."""
    mine = next((one for one in standings if one.tenant == tenant), Standing(tenant))
    behind = [one for one in standings if one.tenant != tenant and one.backlogged]
    leads = [(mine.due(clock) - one.due(clock)) * one.weight / shard_seconds for one in behind]
    return sum(int(lead) + 1 for lead in leads if lead > 0)
