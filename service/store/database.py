"""Connections and transactions, the same on SQLite and PostgreSQL.

A writing transaction locks before it reads: on SQLite by BEGIN IMMEDIATE, on PostgreSQL by the row
locks that the statements take. A reading transaction neither blocks nor is blocked.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import certifi
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

ALLOWED_URLS = "allowed: sqlite:////path/to/file and postgresql+psycopg://user@host/database"
LOCK_SECONDS = 30
IDLE_SECONDS = 60  # A worker machine that vanishes inside a transaction must not keep a job's row locked.
QUIET_SECONDS = 1.0  # A connection used so recently counts as alive: a ping is half of a short call.
LEFT_AT, IMMEDIATE = "left_at", "immediate"  # Of connections, for us


class Database:
    """An engine with the two kinds of transaction that the store uses.

    Raises ValueError: the URL is neither a SQLite file nor PostgreSQL through psycopg; OperationalError: the
    folder of a SQLite file cannot be made.
    """

    def __init__(self, url: str) -> None:
        self.url = _parse(url)
        self.engine = _engine(self.url)
        self._writers = threading.Lock()
        # PostgreSQL: each statement sees what was committed before it, also inside READ COMMITTED; a
        # transaction around reads would only cost two round trips.
        alone = self.file is None
        self._reading = self.engine.execution_options(isolation_level="AUTOCOMMIT") if alone else self.engine

    @property
    def file(self) -> Path | None:
        """The database file of SQLite, None on PostgreSQL."""
        return Path(self.url.database or "") if self.url.get_backend_name() == "sqlite" else None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads; on SQLite all its statements see the same moment."""
        with self._reading.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes; it is rolled back when the block raises."""
        with self._turn(), self.engine.connect() as connection:
            connection.info[IMMEDIATE] = True
            with connection.begin():
                yield connection

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """SQLite: threads of a process write in turn; its own waiting sleeps, for up to 0.1 s at a time."""
        taken = self.file is not None and self._writers.acquire(timeout=LOCK_SECONDS)
        try:
            yield
        finally:
            if taken:
                self._writers.release()

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()


class StorePart:
    """Base of the parts of the store: every method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database


def cannot_open(file: Path, error: Exception) -> OperationalError:
    """The error that SQLAlchemy would raise for an unusable SQLite file."""
    return OperationalError(f"open {file}", {}, error)


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # The URL may hold a password.
        raise ValueError(f"the database URL cannot be parsed, {ALLOWED_URLS}") from None


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    if url.drivername == "postgresql+psycopg":
        return _postgresql(url)
    raise ValueError(f"the database URL starts with {url.drivername}://, {ALLOWED_URLS}")


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise ValueError("the SQLite database must be a file: sqlite:////path/to/file")
    try:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_open(Path(url.database), error) from error
    # SQLite has one writer: a large pool costs file handles only.
    engine = create_engine(url, connect_args={"timeout": LOCK_SECONDS}, pool_size=10, max_overflow=90)
    event.listen(engine, "connect", _set_up_sqlite)
    engine.dialect.do_begin = _begin_sqlite  # type: ignore[method-assign, assignment]
    return engine


def _set_up_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # The driver would begin transactions without a lock.
    cursor = connection.cursor()
    for pragma in (f"busy_timeout = {LOCK_SECONDS * 1000}", "foreign_keys = ON", "synchronous = NORMAL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    # A deferred transaction that reads, then writes may fail at once with "database is locked". No listener
    # of events: with one, every statement would look for others.
    connection.execute("BEGIN IMMEDIATE" if connection.info.pop(IMMEDIATE, False) else "BEGIN")


def _postgresql(url: URL) -> Engine:
    options = (
        f"-c lock_timeout={LOCK_SECONDS * 1000} -c idle_in_transaction_session_timeout={IDLE_SECONDS * 1000}"
    )
    arguments = {"options": options, "connect_timeout": 10, "application_name": "assay"}
    own = "PGSSLROOTCERT" in os.environ or os.path.exists(os.path.expanduser("~/.postgresql/root.crt"))
    if str(url.query.get("sslmode", "")).startswith("verify-") and not own:
        arguments["sslrootcert"] = certifi.where()  # libpq of psycopg's wheel knows no authority.
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",  # Statements see what was committed before, after locks.
        connect_args={**arguments, **url.query},
        pool_size=5,
        max_overflow=45,
    )
    event.listen(engine, "checkin", _left)
    event.listen(engine, "checkout", partial(_taken, engine))
    event.listen(engine, "handle_error", _call_it_away)
    return engine


def _call_it_away(context: ExceptionContext) -> None:
    # The server ends a transaction that is idle too long; the driver calls that an internal error. Here it is
    # a lost connection.
    lost = context.is_disconnect and isinstance(context.sqlalchemy_exception, DBAPIError)
    if lost and not isinstance(context.sqlalchemy_exception, OperationalError):
        error = OperationalError(context.statement, context.parameters, context.original_exception)
        raise error from context.original_exception


def _left(connection: Any, record: ConnectionPoolEntry) -> None:
    record.info[LEFT_AT] = time.monotonic()


def _taken(engine: Engine, connection: Any, record: ConnectionPoolEntry, proxy: Any) -> None:
    """Pings a connection, like `pool_pre_ping`, but not before each of many calls."""
    left_at = record.info.get(LEFT_AT)
    if left_at is None or time.monotonic() - left_at < QUIET_SECONDS:
        return  # new, or just used
    try:
        engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error as error:
        raise InvalidatePoolError from error  # The others have most likely died too
