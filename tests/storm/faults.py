"""Faults that kill, freeze and cut, one function each, and what strikes them.

Those of the surroundings are in `surroundings.py`, those that lie in `lies.py`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg

from tests.storm.cluster import Cluster
from tests.storm.evidence import Evidence
from tests.storm.site import LEASE_SECONDS

log = logging.getLogger(__name__)
T = TypeVar("T")
# Whether it has struck: not where there was nothing to hit.
Fault = Callable[["Faults"], bool]


class Faults:
    """Injects faults into a cluster, in an order determined by the seed: each kind once, then at random.

    What is hit by a fault depends on what runs at that moment, so that two storms of one seed are alike, and
    not the same.

    Args:
        cluster: that is struck.
        seed: of all that is drawn.
        kinds: by name: the function, and how often it is drawn.
        together: those that strike at once, the first time.

    Attributes:
        left: kinds that have not struck yet.
        done: how often each kind of fault found something to hit.
        named: for each kind that can be named, the first text that named it.
        problems: what a fault has found that must not be.
    """

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        kinds: Mapping[str, tuple[Fault, float]],
        together: Collection[str] = (),
    ) -> None:
        self.cluster = cluster
        self.evidence = Evidence(cluster)
        self.draw = random.Random(f"faults {seed}")
        self.left = self.draw.sample(sorted(kinds), len(kinds))
        self.done: Counter[str] = Counter()
        self.named: dict[str, str] = {}
        self.problems: list[str] = []
        self._kinds, self._together = kinds, together
        self._frozen: list[threading.Thread] = []

    def strike(self) -> None:
        """One fault: of a kind that has not struck yet, or of a random one."""
        weights = [weight for _, weight in self._kinds.values()]
        first = self.left[0] if self.left else self.draw.choices(list(self._kinds), weights)[0]
        names = [name for name in self.left if {name, first} <= {*self._together}] or [first]
        self.left = [name for name in self.left if name not in names]
        log.info("fault: %s", ", ".join(names))
        with ThreadPoolExecutor(len(names)) as pool:
            for name, struck in zip(names, pool.map(self._strike, names), strict=True):
                self.done[name] += struck
                if not self.done[name]:
                    self.left.append(name)

    def _strike(self, name: str) -> bool:
        return self._kinds[name][0](self)

    def freeze(self, pid: int, seconds: float) -> None:
        """Stop a process for a while, without blocking other faults."""
        self._frozen.append(threading.Thread(target=_freeze, args=(pid, seconds)))
        self._frozen[-1].start()

    def end(self) -> None:
        """Wait until no process is frozen."""
        for thread in self._frozen:
            thread.join()

    def pick(self, pids: list[int]) -> int | None:
        """One of some processes."""
        return self.draw.choice(sorted(pids)) if pids else None

    def name(self, kind: str, said: str) -> None:
        """Record what has named a fault."""
        log.info("%s is named: %s", kind, said)
        self.named.setdefault(kind, said)


def wait_until(look: Callable[[], T], seconds: float) -> T:
    """What a look gives, once that is true, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def kill_evaluator(faults: Faults) -> bool:
    """kill -9 of an evaluator, as by the out-of-memory killer."""
    return _kill(faults, faults.cluster.evaluators())


def kill_supervisor(faults: Faults) -> bool:
    """kill -9 of the process that claims shards; its evaluator must notice on its own."""
    return _kill(faults, faults.cluster.supervisors())


def kill_node(faults: Faults) -> bool:
    """kill -9 of a node's first process."""
    return _kill(faults, faults.cluster.nodes())


def kill_box(faults: Faults) -> bool:
    """kill -9 of all processes of a box except the evaluators; another box joins after a moment."""
    box = faults.pick(faults.cluster.boxes())
    if box is not None:
        faults.cluster.kill_box(box)
        time.sleep(faults.draw.uniform(0, 1.0))
    faults.cluster.revive()
    return box is not None


def freeze_worker(faults: Faults) -> bool:
    """Freezes a worker for longer than its lease, then resumes it."""
    pid = faults.pick(faults.cluster.supervisors())
    if pid is None:
        return False
    faults.freeze(pid, LEASE_SECONDS * faults.draw.uniform(1.1, 1.6))
    return True


def freeze_gateway(faults: Faults) -> bool:
    """Freezes the service for longer than the leases of its nodes, then resumes it."""
    running = [api.process.pid for api in faults.cluster.apis if api.process is not None and api.up]
    pid = faults.pick(running)
    if pid is None:
        return False
    faults.freeze(pid, LEASE_SECONDS * faults.draw.uniform(1.1, 1.6))
    return True


def cut_connections(faults: Faults) -> bool:
    """Ends every connection to the database, even within transactions."""
    try:
        faults.cluster.servers.postgresql.cut_connections()
    except psycopg.OperationalError:
        return False
    return True


def restart_database(faults: Faults) -> bool:
    """Stops the database, cleanly or not, and restarts it after a while."""
    server = faults.cluster.servers.postgresql
    server.stop(faults.draw.choice(["fast", "immediate"]))
    time.sleep(faults.draw.uniform(0, 2.0))
    server.start()
    return True


def lose_redis(faults: Faults) -> bool:
    """Kills Redis and restarts it empty after a while."""
    faults.cluster.servers.redis.kill()
    time.sleep(faults.draw.uniform(0, 2.0))
    faults.cluster.servers.redis.start()
    return True


KILLS: dict[str, tuple[Fault, float]] = {
    "evaluators killed": (kill_evaluator, 6),
    "supervisors killed": (kill_supervisor, 2),
    "nodes killed": (kill_node, 1.5),
    "boxes killed": (kill_box, 1.5),
    "leases run out": (freeze_worker, 3),
    "connections cut": (cut_connections, 4),
    "database restarts": (restart_database, 2),
    "Redis lost": (lose_redis, 2),
}

# Nodes of a gateway are boxes, and no one has a Redis.
OVER_GATEWAY = {name: kind for name, kind in KILLS.items() if name not in ("nodes killed", "Redis lost")}
OVER_GATEWAY["gateways frozen"] = (freeze_gateway, 2)


def _kill(faults: Faults, pids: list[int]) -> bool:
    pid = faults.pick(pids)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _freeze(pid: int, seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
