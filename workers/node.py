"""The pool process of a Celery node: supervisors for work and for checks, and a reaper; as in embedded mode.

Nothing here waits for database or Redis: Celery gives a new pool process four seconds to report.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

from assay.service.contract.fleet import traces
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import open_store
from assay.workers.containment.kernel import forbid_dumps
from assay.workers.devices import device_classes
from assay.workers.settings import WorkerSettings
from assay.workers.staging.stager import Stager
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.reaper import Reaper
from assay.workers.supervision.supervisor import Supervisor

log = logging.getLogger(__name__)


class Node:
    """Supervisors for work and for checks of uploads, a reaper; OSError: no state folder."""

    def __init__(self, settings: WorkerSettings, ring_others: Callable[[str], None]) -> None:
        forbid_dumps()  # its evaluator, of the same user, must not read its secrets
        devices = device_classes()
        self._store = open_store(settings.database, migrate=False)
        ledger = DirectLedger(self._store, settings)
        self._supervisors = [
            Supervisor(
                ledger,
                settings,
                device_classes=classes,
                number=number,
                files=ledger.files,
                ring_others=ring_others,
            )
            for number, classes in enumerate((devices, (CHECKS,)))
        ]
        self._stager = Stager(
            settings, [supervisor.inventory for supervisor in self._supervisors], ring=self.ring
        )
        self._reaper = Reaper(self._store, settings, device_classes=devices, ring=self.ring)

    def start(self) -> None:
        """Begin to claim shards."""
        for supervisor in self._supervisors:
            supervisor.start()
        self._stager.start()
        self._reaper.start()

    def ring(self) -> None:
        """There may be something to claim."""
        for supervisor in self._supervisors:
            supervisor.ring()

    def stop(self) -> None:
        """Give the running shards back, end the evaluators; returns when all are done."""
        self._reaper.stop()
        self._stager.stop()
        for supervisor in self._supervisors:
            supervisor.stop()
        for supervisor in self._supervisors:
            supervisor.join()
        self._reaper.join()
        self._store.close()


_node: Node | None = None


def start(settings: WorkerSettings, *, ring_others: Callable[[str], None]) -> None:
    """Start this process's node; one that cannot start ends its Celery worker."""
    global _node  # noqa: PLW0603 (Celery's signals and tasks are functions: they meet here)
    try:
        traces.set_up("assay-worker")
        _node = Node(settings, ring_others)
        _node.start()
    except Exception:
        # Celery would log and continue: the worker would look alive but never work.
        log.exception("the node cannot start")
        os.kill(os.getppid(), signal.SIGTERM)


def ring() -> None:
    """Wake this process's supervisors."""
    if _node is not None:
        _node.ring()


def stop() -> None:
    """Stop this process's node."""
    if _node is not None:
        _node.stop()
    traces.flush()
