"""The store: all stored state of jobs, behind one object.

    store = open_store("sqlite:////var/lib/assay/assay.sqlite")
    job, created = store.jobs.add(spec, body_sha256=digest)
    claim = store.shards.claim(worker, ["cpu"], lease_seconds=90)

It may be used from several threads; each process opens its own. Every method is one short
transaction and raises errors of `service.contract.errors`; `sqlalchemy.exc.OperationalError` means that the
database is away and that the outcome of the call is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import text

from assay.service.store import overview
from assay.service.store.artifacts import Artifacts
from assay.service.store.audit import Audit
from assay.service.store.browser_sessions import BrowserSessions
from assay.service.store.checkpoints import Checkpoints
from assay.service.store.database import Database
from assay.service.store.events import Events
from assay.service.store.fleet.allotments import Allotments
from assay.service.store.fleet.cordons import Cordons
from assay.service.store.fleet.lanes import Lanes
from assay.service.store.fleet.workers import Counters, Workers
from assay.service.store.jobs import Jobs
from assay.service.store.keys import Keys
from assay.service.store.overview import WorkerRow
from assay.service.store.results import ResultRows
from assay.service.store.shards import Shards
from assay.service.store.uploads import Uploads

FeatureStore = TypeVar("FeatureStore")


class Store:
    """The tables by topic; also a context manager that closes the connections."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.jobs = Jobs(database)
        self.shards = Shards(database)
        self.results = ResultRows(database)
        self.events = Events(database)
        self.artifacts = Artifacts(database)
        self.checkpoints = Checkpoints(database)
        self.workers = Workers(database)
        self.cordons = Cordons(database)
        self.identities = self.cordons.identities
        self.lanes = Lanes(database)
        self.keys = Keys(database)
        self.browser_sessions = BrowserSessions(database)
        self.counters = Counters(database)
        self.audit = Audit(database)
        self.uploads = Uploads(database)
        self.allotments = Allotments(database)

    def part(self, kind: Callable[[Database], FeatureStore]) -> FeatureStore:
        """A feature's tables in this database."""
        return kind(self._database)

    def overview(self) -> overview.Overview:
        """Overview for monitoring."""
        return overview.read(self._database)

    def online_workers(self) -> tuple[WorkerRow, ...]:
        """Workers with a heartbeat in the last minute, by id."""
        return overview.online_workers(self._database)

    def job_counts(self, tenant: str | None = None) -> dict[str, int]:
        """Number of jobs by state, without empty states, of a tenant if given."""
        return overview.job_counts(self._database, tenant)

    def ping(self) -> None:
        """Raises OperationalError when the database does not answer."""
        with self._database.reading() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        """Closes all connections; a later call opens new ones."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(url: str, *, migrate: bool = True) -> Store:
    """Opens the database at a URL.

    `url`: `sqlite:


    path/to/file` (made if absent, with its folder) or `postgresql+psycopg:

    user@host/database`. `migrate`: create or upgrade the tables first. Raises ValueError: for another kind of
    URL; OperationalError: no database, or its file cannot be opened.
    """
    database = Database(url)
    if migrate:
        from assay.service.store.upgrade import upgrade  # alembic, which most processes never need

        upgrade(database)
    return Store(database)
