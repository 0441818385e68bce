"""The whole service in one process: API, supervisors and reaper over SQLite; one evaluator per worker.

This is what `assay serve` runs. It is the only module of the workers that may import the service's
application.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TypeVar

import uvicorn
from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy.exc import DBAPIError

from service.app import create_app
from service.serving import Server
from service.settings import Settings, wrong_settings
from service.store.session import Store, open_store
from workers.devices import device_classes
from workers.reaper import Reaper
from workers.settings import WorkerSettings
from workers.supervisor import Supervisor

log = logging.getLogger(__name__)
GRACEFUL_SHUTDOWN_SECONDS = 5
CANNOT_START = 1
WRONG_SETTINGS = 2
T = TypeVar("T")


class ThreadDispatcher:
    """Rings the supervisors of this process."""

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        self._supervisors = supervisors

    def ring(self, job_id: str) -> None:
        """Wake every supervisor; the database says what there is to do."""
        for supervisor in self._supervisors:
            supervisor.ring()


class CannotStart(Exception):
    """Something outside this process keeps the service from starting; the message says what."""


def main() -> int:
    """Serve until SIGINT or SIGTERM; running shards go back to the queue.

    Returns:
        0 after a signal, 1 when the service could not start, 2 for wrong settings.
    """
    problems: list[str] = []
    settings, worker_settings = _read(Settings, problems), _read(WorkerSettings, problems)
    if settings is None or worker_settings is None:
        sys.stderr.write("".join(f"{line}\n" for line in dict.fromkeys(problems)))
        return WRONG_SETTINGS
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, _end)
    try:
        # The port comes before the database and the workers: nothing is claimed that must be given back.
        with (
            _exclusive(settings.state),
            closing(_listen(settings.host, settings.port)) as listener,
            closing(_open_store(settings.database)) as store,
        ):
            _serve(settings, worker_settings, store, listener)
    except CannotStart as error:
        sys.stderr.write(f"{error}\n")
        return CANNOT_START
    except KeyboardInterrupt:
        return 0
    return 0


def _end(number: int, frame: object) -> None:
    """SIGTERM unwinds the stack like SIGINT does, so that the workers are stopped on the way out.

    uvicorn handles the signal while it serves, and raises it again when it has finished.
    """
    raise KeyboardInterrupt


def _read(kind: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return kind()
    except (ValidationError, SettingsError) as error:
        problems += wrong_settings(error)
        return None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        # Now, and not once everything has started: several may be bound to a port, but only one listens.
        listener.listen()
    except OSError as error:
        listener.close()
        raise CannotStart(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another port with --port N"
            " (ASSAY_PORT)"
        ) from None
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


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
    with _workers(store, worker_settings, settings.workers) as supervisors:
        app = create_app(settings, store=store, dispatcher=ThreadDispatcher(supervisors))
        config = uvicorn.Config(
            app,
            log_level=settings.log_level.lower(),
            access_log=False,
            timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS,
        )
        server = Server(app, config)
        # uvicorn does not say where it serves when it is given a socket.
        log.info("serving at %s, with its documentation at %s/docs", *[_address(listener)] * 2)
        server.run(sockets=[listener])
        if not server.started:
            raise CannotStart("the service did not start; the log above says why")


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
    with _lock_file(state) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise CannotStart(
                f"another Assay service (process {file.read().strip() or 'unknown'}) uses the state folder"
                f" {state}; stop it, or give this one its own with --state DIR"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _lock_file(state: Path) -> IO[str]:
    try:
        state.mkdir(parents=True, exist_ok=True)
        return (state / "lock").open("a+")
    except OSError as error:
        raise CannotStart(f"cannot use the state folder {state}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
