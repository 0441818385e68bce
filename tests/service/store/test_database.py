"""Connections: what a transaction is on each kind of database, and what becomes of connections that died."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from assay.service.store import database
from assay.service.store.database import Database
from assay.service.store.store import Store, open_store
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.jobs import add, evaluate_spec
from tests.support.tls import TlsListener

IMPATIENT = "PRAGMA busy_timeout = 0"


def cut(url: str) -> None:
    """Ends every other connection to the database."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture
def cut_off(emptied_postgresql_url: str) -> Store:
    """A store with two connections in its pool that the server has closed."""
    store = open_store(emptied_postgresql_url, migrate=False)
    with store._database.reading(), store._database.reading():
        store.ping()
    cut(emptied_postgresql_url)
    return store


def test_a_connection_that_died_while_it_was_quiet_is_replaced(
    cut_off: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "QUIET_SECONDS", 0.0)
    with cut_off as store:
        store.ping()
        assert store.jobs.get(add(store, evaluate_spec())).state == "queued"


def test_of_connections_that_died_between_two_calls_one_is_noticed_and_all_are_replaced(
    cut_off: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "QUIET_SECONDS", 1000.0)
    with cut_off as store:
        with pytest.raises(OperationalError):
            store.ping()
        for _ in range(3):
            store.ping()
        with store._database.reading(), store._database.reading():
            store.ping()


def test_what_only_reads_needs_no_transaction_on_postgresql(emptied_postgresql_url: str) -> None:
    opened = Database(emptied_postgresql_url)
    status = text("SELECT pg_current_xact_id_if_assigned() IS NULL, now() = statement_timestamp()")
    for _ in range(2):
        with opened.reading() as connection:
            connection.execute(text("SELECT pg_sleep(0.01)"))
            assert connection.execute(status).one() == (True, True)
        with opened.writing() as connection:
            connection.execute(text("SELECT pg_sleep(0.01)"))
            assert connection.execute(status).one() == (True, False)
    opened.close()


def test_what_reads_sees_one_moment_on_sqlite(sqlite_template: Path, tmp_path: Path) -> None:
    shutil.copy(sqlite_template, tmp_path / "assay.sqlite")
    count = text("SELECT count(*) FROM jobs")
    with open_store(f"sqlite:///{tmp_path / 'assay.sqlite'}", migrate=False) as store:
        with store._database.reading() as connection:
            assert connection.execute(count).scalar_one() == 0
            add(store, evaluate_spec())
            assert connection.execute(count).scalar_one() == 0
        assert len(store.jobs.page()[0]) == 1


def test_threads_of_a_process_write_in_turn_to_a_file(tmp_path: Path) -> None:
    """By a lock: SQLite itself would look for its turn in sleeps of up to a tenth of a second."""
    opened = Database(f"sqlite:///{tmp_path / 'a.sqlite'}")
    event.listen(
        opened.engine, "begin", lambda connection: connection.exec_driver_sql(IMPATIENT), insert=True
    )
    begun, written = threading.Event(), list[str]()

    def write(name: str) -> None:
        with opened.writing() as connection:
            begun.set()
            time.sleep(0.2)
            connection.execute(text(f"CREATE TABLE {name} (x)"))
            written.append(name)

    first = threading.Thread(target=write, args=("a",))
    first.start()
    assert begun.wait(30)
    write("b")
    first.join()
    assert written == ["a", "b"]
    opened.close()


def test_the_authority_of_a_server_is_named_or_public(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq would only look into the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)

    def reached(parameters: str = "") -> bool:
        """Whether the client says something to the server that it met."""
        before = len(listener.said)
        address = f"postgresql+psycopg://assay:0123456789abcdef@localhost:{listener.port}/assay"
        opened = Database(f"{address}?sslmode=verify-full{parameters}")
        with pytest.raises(OperationalError), opened.reading() as connection:
            connection.execute(text("SELECT 1"))
        return len(listener.said) > before

    with TlsListener(tmp_path, postgresql=True) as listener:
        assert not reached()
        assert reached(f"&sslrootcert={listener.certificate}")
        monkeypatch.setattr("certifi.where", lambda: str(listener.certificate))
        assert reached(), "as a public authority"
        monkeypatch.setenv("PGSSLROOTCERT", str(tmp_path / "none.crt"))
        assert not reached()
