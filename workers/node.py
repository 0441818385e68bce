"""The pool process of a Celery node: a supervisor and a reaper, threads as in embedded mode.

Nothing here waits for the database or for Redis: Celery gives a new pool process four seconds to report.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

from assay.service.store.store import open_store
from assay.workers.containment.kernel import forbid_dumps
from assay.workers.devices import device_classes
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.reaper import Reaper
from assay.workers.supervision.supervisor import Supervisor

log = logging.getLogger(__name__)


class Node:
    """One supervisor with its evaluator, and one reaper.

    Args:
        settings: of a distributed worker.
        ring_others: tells the other nodes that a job has become claimable; it may fail.

    Raises:
        OSError: the state folder cannot be used.
    """

    def __init__(self, settings: WorkerSettings, ring_others: Callable[[str], None]) -> None:
        forbid_dumps()  # its evaluator, of the same user, must not read its secrets
        devices = device_classes()
        self._store = open_store(settings.database, migrate=False)
        self._supervisor = Supervisor(self._store, settings, device_classes=devices, ring_others=ring_others)
        self._reaper = Reaper(self._store, settings, device_classes=devices, ring=self._supervisor.ring)

    def start(self) -> None:
        """Begin to claim shards."""
        self._supervisor.start()
        self._reaper.start()

    def ring(self) -> None:
        """There may be something to claim."""
        self._supervisor.ring()

    def stop(self) -> None:
        """Give the running shard back, end the evaluator, and return when both are done."""
        self._reaper.stop()
        self._supervisor.stop()
        self._supervisor.join()
        self._reaper.join()
        self._store.close()


_node: Node | None = None


def start(settings: WorkerSettings, *, ring_others: Callable[[str], None]) -> None:
    """Start this process's node; one that cannot start ends its Celery worker."""
    global _node  # noqa: PLW0603 (Celery's signals and tasks are functions: they meet here)
    try:
        _node = Node(settings, ring_others)
        _node.start()
    except Exception:
        # Celery would log the error and continue, and the worker would look alive but never work.
        log.exception("the node cannot start")
        os.kill(os.getppid(), signal.SIGTERM)


def ring() -> None:
    """Wake this process's supervisor."""
    if _node is not None:
        _node.ring()


def stop() -> None:
    """Stop this process's node."""
    if _node is not None:
        _node.stop()
