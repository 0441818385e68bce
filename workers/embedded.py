"""The whole service in one process: API, supervisors and reaper over SQLite; one evaluator per worker.

This is what `assay serve` runs. It is the only module of the workers that may import the service's
application.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from service.app import create_app
from service.settings import Settings
from service.store.session import Store, open_store
from workers.devices import device_classes
from workers.reaper import Reaper
from workers.settings import WorkerSettings
from workers.supervisor import Supervisor

log = logging.getLogger(__name__)
GRACEFUL_SHUTDOWN_SECONDS = 5


class ThreadDispatcher:
    """Rings the supervisors of this process."""

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        self._supervisors = supervisors

    def ring(self, job_id: str) -> None:  # noqa: ARG002 (the doorbell needs no id in one process)
        """Wake every supervisor; the database says what there is to do."""
        for supervisor in self._supervisors:
            supervisor.ring()


class StateInUse(Exception):
    """Another service runs on this state folder."""


def main() -> int:
    """Serve until SIGINT or SIGTERM; running shards go back to the queue."""
    settings = Settings()
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        with _exclusive(settings.state):
            _serve(settings)
    except StateInUse as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _serve(settings: Settings) -> None:
    store = open_store(settings.database)
    worker_settings = WorkerSettings()
    with _workers(store, worker_settings, settings.workers) as supervisors:
        app = create_app(settings, store=store, dispatcher=ThreadDispatcher(supervisors))
        uvicorn.run(
            app,
            host=settings.host,
            port=settings.port,
            log_level=settings.log_level.lower(),
            access_log=False,
            timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS,
        )
    store.close()


@contextmanager
def _workers(store: Store, settings: WorkerSettings, count: int) -> Iterator[list[Supervisor]]:
    devices = device_classes()
    supervisors = [Supervisor(store, settings, device_classes=devices, number=n) for n in range(count)]
    threads: list[Supervisor | Reaper] = [*supervisors, Reaper(store, settings)]
    for thread in threads:
        thread.start()
    try:
        yield supervisors
    finally:
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()


@contextmanager
def _exclusive(state: Path) -> Iterator[None]:
    """Hold the state folder: two embedded services on one folder would fight over it."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StateInUse(
                f"another Assay service (process {file.read().strip() or 'unknown'}) uses the state folder"
                f" {state}; stop it, or give this one its own with --state DIR"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


if __name__ == "__main__":
    sys.exit(main())
