"""Who is alive. For people and `workers_online` only: whether a shard is lost, its lease decides."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, func, select

from service.store.clock import now
from service.store.database import Database
from service.store.tables import workers
from service.store.upsert import upsert

FORGOTTEN_SECONDS = 86400


class Workers:
    """The workers' signs of life. Every method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def beat(self, worker: str, host: str, device_classes: Sequence[str], pid: int) -> None:
        """A worker says that it is alive; workers that have been silent for a day are forgotten.

        Args:
            worker: the worker's id; opaque here.
            host: the machine it runs on.
            device_classes: all that it serves: a machine with a GPU also takes jobs for "cpu".
            pid: its process there.
        """
        assert not isinstance(device_classes, str), "a sequence of device classes, not one"
        # With a comma on both sides of each, so that ",cpu," finds it wherever it stands.
        served = f",{','.join(device_classes)},"
        values = {"worker": worker, "host": host, "device_classes": served, "pid": pid, "seen_at": now()}
        with self._database.writing() as connection:
            upsert(connection, workers, values)
            connection.execute(delete(workers).where(workers.c.seen_at < now() - FORGOTTEN_SECONDS))

    def online(self, device: str, within_seconds: float = 60) -> int:
        """How many workers that serve a device ("auto": any) gave a sign of life in the last seconds."""
        alive = workers.c.seen_at >= now() - within_seconds
        statement = select(func.count()).select_from(workers).where(alive)
        if device != "auto":
            statement = statement.where(workers.c.device_classes.contains(f",{device},", autoescape=True))
        with self._database.reading() as connection:
            return connection.execute(statement).scalar_one()

    def gone(self, worker: str) -> None:
        """A worker says goodbye."""
        with self._database.writing() as connection:
            connection.execute(delete(workers).where(workers.c.worker == worker))
