"""Faults of a distributed service, one function each, and their order."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import psycopg

from tests.storm.cluster import LEASE_SECONDS, Cluster

log = logging.getLogger(__name__)
Fault = Callable[["Faults"], bool]


class Faults:
    """Injects faults into a cluster, in an order determined by the seed.

    What is hit by a fault depends on what runs at that moment, so that two storms of one seed are alike, and
    not the same.

    Attributes:
        done: how often each kind of fault found something to hit.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.draw = random.Random(f"faults {seed}")
        self.done: Counter[str] = Counter()
        self._frozen: list[threading.Thread] = []

    def strike(self) -> None:
        """One fault of a random kind."""
        name = self.draw.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
        if KINDS[name][0](self):
            self.done[name] += 1

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


KINDS: dict[str, tuple[Fault, float]] = {
    "evaluators killed": (kill_evaluator, 6),
    "supervisors killed": (kill_supervisor, 2),
    "nodes killed": (kill_node, 1.5),
    "boxes killed": (kill_box, 1.5),
    "leases run out": (freeze_worker, 3),
    "connections cut": (cut_connections, 4),
    "database restarts": (restart_database, 2),
    "Redis lost": (lose_redis, 2),
}


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
