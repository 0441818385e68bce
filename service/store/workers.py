"""Who is alive. For people and `workers_online` only: whether a shard is lost, its lease decides."""

from __future__ import annotations

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

    def beat(self, worker: str, host: str, device_class: str, pid: int) -> None:
        """A worker says that it is alive; workers that have been silent for a day are forgotten."""
        values = {"worker": worker, "host": host, "device_class": device_class, "pid": pid, "seen_at": now()}
        with self._database.writing() as connection:
            upsert(connection, workers, values)
            connection.execute(delete(workers).where(workers.c.seen_at < now() - FORGOTTEN_SECONDS))

    def online(self, device: str, within_seconds: float = 60) -> int:
        """How many workers for a device ("auto": any) gave a sign of life in the last seconds."""
        alive = workers.c.seen_at >= now() - within_seconds
        statement = select(func.count()).select_from(workers).where(alive)
        if device != "auto":
            statement = statement.where(workers.c.device_class == device)
        with self._database.reading() as connection:
            return connection.execute(statement).scalar_one()

    def gone(self, worker: str) -> None:
        """A worker says goodbye."""
        with self._database.writing() as connection:
            connection.execute(delete(workers).where(workers.c.worker == worker))
