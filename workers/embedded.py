"""The whole service in one process, as `assay serve` runs it: API, supervisors and reaper over SQLite.

No other module of the workers may import the service's application.
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.workers.embedded", "service", "worker")

import fcntl
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TypeVar

from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy.exc import DBAPIError

from assay.service.app import create_app
from assay.service.contract import logs
from assay.service.contract.weights.pulled import PulledRecords
from assay.service.files.state_lock import LOCK, PRIVATE, read_holder
from assay.service.serving import (
    CANNOT_START,
    WRONG_SETTINGS,
    CannotStart,
    address_of,
    declare,
    listen,
    run,
    unwind,
)
from assay.service.settings import Settings
from assay.service.store.connections import unknown_variables, wrong_settings
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import Store, open_store
from assay.workers.containment.kernel import forbid_dumps
from assay.workers.containment.probe import why_refused
from assay.workers.devices import device_classes
from assay.workers.discovery.packages import extend_catalog
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.reaper import Reaper
from assay.workers.supervision.supervisor import Supervisor
from assay.workers.weights.pulled import listed

log = logging.getLogger(__name__)
T = TypeVar("T")
LOCK_TRIES, LOCK_PAUSE = 3, 0.1  # seconds between two


class ThreadDispatcher:
    """Rings the supervisors of this process."""

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        self._supervisors = supervisors

    def ring(self, job_id: str, device: str) -> None:
        """Wake every supervisor; the database has the work."""
        for supervisor in self._supervisors:
            supervisor.ring()


def main() -> int:
    """Serve until SIGINT or SIGTERM (0), shards requeued; 1: could not start, 2: wrong settings."""
    problems: list[str] = []
    settings, worker_settings = _read(Settings, problems), _read(WorkerSettings, problems)
    if settings is None or worker_settings is None:
        sys.stderr.write("".join(f"{line}\n" for line in dict.fromkeys(problems)))
        return WRONG_SETTINGS
    logs.set_up(settings.log_level, settings.log_format)
    for line in unknown_variables({*Settings.model_fields, *WorkerSettings.model_fields}):
        log.warning("%s", line)
    signal.signal(signal.SIGTERM, unwind)
    forbid_dumps()  # an evaluator of the same user must not read its secrets
    try:
        if (problem := why_refused(worker_settings.trial)) is not None:
            raise CannotStart(problem)
        # The port first: a failure leaves neither a folder nor claims.
        with (
            closing(listen(settings.host, settings.port)) as listener,
            _exclusive(settings.state, _stated_address(listener)),
            closing(_open_store(settings.database)) as store,
        ):
            extend_catalog(settings.state)
            _serve(settings, worker_settings, store, listener)
    except CannotStart as error:
        sys.stderr.write(f"{error}\n")
        return CANNOT_START
    except KeyboardInterrupt:
        return 0
    return 0


def _read(kind: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return kind()
    except (ValidationError, SettingsError) as error:
        problems += wrong_settings(error)
        return None


def _open_store(url: str) -> Store:
    try:
        return open_store(url)
    except ValueError as error:
        raise CannotStart(f"ASSAY_DATABASE_URL: {error}") from None
    except DBAPIError as error:
        raise CannotStart(f"cannot open the database: {' '.join(str(error.orig).split())}") from None


def _serve(
    settings: Settings, worker_settings: WorkerSettings, store: Store, listener: socket.socket
) -> None:
    declare(settings, store)
    with _workers(store, worker_settings, settings.workers) as supervisors:
        # Evaluators run this interpreter.
        has_package = _has_package if supervisors else None
        app = create_app(
            settings,
            store=store,
            dispatcher=ThreadDispatcher(supervisors),
            has_package=has_package,
            list_pulled=partial(_pulled, worker_settings.weights_root) if supervisors else None,
        )
        run(app, listener, settings.log_level)


def _has_package(name: str) -> bool:
    return find_spec(name) is not None


def _pulled(root: Path) -> PulledRecords:
    return {one.reference: one.record for one in listed(root)}


@contextmanager
def _workers(store: Store, settings: WorkerSettings, count: int) -> Iterator[list[Supervisor]]:
    devices = device_classes()
    shares = {"cores": settings.cores_each(count), "max_evaluator_bytes": settings.memory_each(count)}
    settings = settings.model_copy(update=shares)
    supervisors: list[Supervisor] = []
    ledger = DirectLedger(store, settings)

    def ring_all(job_id: str = "") -> None:
        for supervisor in supervisors:
            supervisor.ring()

    supervisors += [
        Supervisor(
            ledger, settings, device_classes=devices, number=n, files=ledger.files, ring_others=ring_all
        )
        for n in range(count)
    ]
    if supervisors:
        supervisors.append(
            Supervisor(
                ledger,
                settings,
                device_classes=(CHECKS,),
                number=count,
                files=ledger.files,
                ring_others=ring_all,
            )
        )
    from assay.workers.staging.stager import Stager  # with an HTTP client, which few services need

    stager = Stager(settings, [supervisor.inventory for supervisor in supervisors], ring=ring_all)
    threads: list[Supervisor | Reaper] = [
        *supervisors,
        Reaper(
            store,
            settings,
            device_classes=devices,
            ring=ring_all,
            grace_seconds=settings.lease_seconds / 2,  # of nodes: they renew after a third
        ),
    ]
    for thread in threads:
        thread.start()
    stager.start()
    try:
        yield supervisors
    finally:
        stager.stop()
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()


def _stated_address(listener: socket.socket) -> str:
    """Where clients of this machine reach the service; empty for a service that ends with its call."""
    if PRIVATE in sys.argv[1:]:
        return ""
    return address_of(listener).replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


@contextmanager
def _exclusive(state: Path, address: str) -> Iterator[None]:
    """Lock the state folder, as two embedded services there would conflict; the file says which has it."""
    with _lock_file(state) as file:
        for tried in range(LOCK_TRIES):  # a client that looks who has the folder holds the file for a moment
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if tried == LOCK_TRIES - 1:
                    said = read_holder(state, file)
                    raise CannotStart(f"{said}; stop it, or give this one its own with --state DIR") from None
                time.sleep(LOCK_PAUSE)
        file.truncate(0)
        file.write(f"{os.getpid()} {address}")
        file.flush()
        yield


def _lock_file(state: Path) -> IO[str]:
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (state / LOCK).open("a+")
    except OSError as error:
        raise CannotStart(f"cannot use the state folder {state}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
