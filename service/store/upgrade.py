"""Migrates a database to the newest revision. Any number of processes may do so at once.

In a rolling upgrade, processes of the version before start on a database ahead of them and leave it alone:
revisions only add.
"""

from __future__ import annotations

import fcntl
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from assay.service.store.database import Database, cannot_open

log = logging.getLogger(__name__)
ADVISORY_LOCK = 0x6173736179  # "assay" in ASCII; any constant that no other program on the server uses


def upgrade(database: Database) -> None:
    """Creates or migrates the tables, in one transaction under a lock of the whole database.

    A newer database stays as it is. Raises OperationalError: no database, or its file cannot be opened.
    """
    with _alone(database.file), database.writing() as connection:
        if database.file is None:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        chosen = configuration(connection)
        present = MigrationContext.configure(connection).get_current_heads()
        known = {script.revision for script in ScriptDirectory.from_config(chosen).walk_revisions()}
        if newer := sorted(set(present) - known):
            log.warning(
                "the database is at revision %s of a newer version; it stays as it is", ", ".join(newer)
            )
            return
        command.upgrade(chosen, "head")


def configuration(connection: Connection) -> Config:
    """Alembic's configuration for the store's revisions over this connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@contextmanager
def _alone(file: Path | None) -> Iterator[None]:
    """Exclusive migration on SQLite: takes a file lock and switches the write-ahead log on."""
    # Switching fails at once where another process has the file open for writing.
    if file is None:
        yield
        return
    with _lock_file(file) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _use_write_ahead_log(file)
        yield


def _lock_file(file: Path) -> IO[str]:
    try:
        return open(f"{file}.lock", "a")
    except OSError as error:
        raise cannot_open(file, error) from error


def _use_write_ahead_log(file: Path) -> None:
    try:
        with closing(sqlite3.connect(file, timeout=30)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.Error as error:
        raise cannot_open(file, error) from error  # The driver has another kind of error for no database.
