"""Fresh databases for tests, on SQLite and on a real PostgreSQL server. Nothing is ever skipped.

A conftest that wants them imports the fixtures:

    from tests.support.databases import *  # noqa: F403 (fixtures)

The server is `ASSAY_TEST_POSTGRESQL` when that is set, else the machine's own on 127.0.0.1:5432 when it
lets us in without a password, else a private one that is started for the session.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL, Engine
from sqlalchemy.util import LRUCache

from assay.service.store import database
from assay.service.store.store import Store, open_store
from tests.support.servers import PrivatePostgresql

__all__ = [
    "database_url",
    "either_store",
    "emptied_postgresql_url",
    "empty_database_url",
    "postgresql_server",
    "postgresql_url",
    "sqlite_template",
    "store",
]

KINDS = ("sqlite", "postgresql")
# Tests on PostgreSQL are many of one kind; races, and what PostgreSQL alone does, run on it always.
SAMPLED = ("sqlite", pytest.param("postgresql", marks=pytest.mark.costly))
ALWAYS_ON_BOTH = pytest.mark.parametrize("database_url", KINDS, indirect=True)
DEFAULTS = ("postgresql://postgres@127.0.0.1:5432/postgres", "postgresql://root@127.0.0.1:5432/root")
EMPTIED = (
    *("jobs", "workers", "api_keys", "counters", "tenants", "accounts", "clocks", "reservations", "studies"),
    *("duties", "clock_marks", "fleets", "cordons", "identities", "lanes", "webhooks", "audit", "usage"),
    *("deleted_tags", "study_designs"),
)
EMPTYING = "; ".join(  # one transaction in one round trip
    [
        "ALTER TABLE audit DISABLE TRIGGER USER",
        *(f"DELETE FROM {table}" for table in EMPTIED),
        "ALTER TABLE audit ENABLE TRIGGER USER",
    ]
)


class Statements(LRUCache[Any, Any]):
    """Compiled statements by SQLAlchemy's key without its first part, an engine's own dialect."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)


@pytest.fixture(scope="session", autouse=True)
def statements_once() -> Iterator[None]:
    """Databases of one kind share what SQLAlchemy compiles: a quarter of the time of a test with a store."""
    build, compiled = database._engine, {kind: Statements(5000) for kind in KINDS}

    def build_sharing(url: URL) -> Engine:
        engine = build(url)
        engine._compiled_cache = compiled[engine.name]
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_engine", build_sharing)
        yield


@pytest.fixture(params=SAMPLED)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database with all tables: on SQLite for each test, on PostgreSQL for the sample."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "assay.sqlite")
        yield f"sqlite:///{tmp_path / 'assay.sqlite'}"
    else:
        yield request.getfixturevalue("emptied_postgresql_url")


@pytest.fixture(params=KINDS)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables (SQLite: without file)."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.sqlite'}"
        return
    with fresh_database(request.getfixturevalue("postgresql_server")) as url:
        yield url


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a server's maintenance database, as a user who may create databases."""
    for url in filter(None, (os.environ.get("ASSAY_TEST_POSTGRESQL"), *DEFAULTS)):
        if _answers(url):
            yield url
            return
    with PrivatePostgresql() as server:
        yield server.url


@pytest.fixture(scope="session")
def postgresql_url(postgresql_server: str) -> Iterator[str]:
    """One database with all tables for the session: dropping one for each test would take seconds."""
    with fresh_database(postgresql_server) as url:
        open_store(url).close()
        yield url


@pytest.fixture
def emptied_postgresql_url(postgresql_url: str) -> str:
    """The session's database, without a row and without what an earlier test left connected to it."""
    with psycopg.connect(_plain(postgresql_url), autocommit=True) as connection:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        connection.execute(EMPTYING)
    return postgresql_url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all tables, to be copied."""
    file = tmp_path_factory.mktemp("sqlite") / "template.sqlite"
    open_store(f"sqlite:///{file}").close()
    return file


@pytest.fixture
def store(sqlite_template: Path, tmp_path: Path) -> Iterator[Store]:
    """An empty store on SQLite."""
    shutil.copy(sqlite_template, tmp_path / "assay.sqlite")
    with open_store(f"sqlite:///{tmp_path / 'assay.sqlite'}", migrate=False) as opened:
        yield opened


@pytest.fixture
def either_store(database_url: str) -> Iterator[Store]:
    """An empty store; the test runs on SQLite and on PostgreSQL."""
    with open_store(database_url, migrate=False) as opened:
        yield opened


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """A new database on the server, dropped afterwards; yields its URL for `open_store`."""
    name = f"assay_test_{secrets.token_hex(6)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
    lazy = sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(name))
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(create)
        # A test's database need not survive a power cut, and waiting for the disk is most of its time.
        connection.execute(lazy)
        try:
            host = server.rpartition("/")[0].replace("postgresql://", "postgresql+psycopg://")
            yield f"{host}/{name}"
        finally:
            connection.execute(drop)


def _plain(url: str) -> str:
    """The URL in psycopg's own form."""
    return url.replace("postgresql+psycopg://", "postgresql://")


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.OperationalError:
        return False
    return True
