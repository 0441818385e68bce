"""Migrations make the tables, wait for each other, and leave newer databases alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from assay.service.store.columns import metadata
from assay.service.store.database import Database
from assay.service.store.store import open_store
from assay.service.store.upgrade import configuration, upgrade
from tests.support.jobs import add, evaluate_spec


@pytest.fixture
def database(empty_database_url: str) -> Iterator[Database]:
    """A database without tables."""
    opened = Database(empty_database_url)
    yield opened
    opened.close()


def schema(connection: Connection) -> dict[str, Any]:
    """The database's full schema as comparable text."""
    inspector = inspect(connection)
    found = {}
    for table in inspector.get_table_names():
        if table != "alembic_version":
            parts = [
                inspector.get_columns(table),
                [inspector.get_pk_constraint(table)],
                inspector.get_foreign_keys(table),
                inspector.get_unique_constraints(table),
                inspector.get_indexes(table),
            ]
            found[table] = [sorted(str(sorted(item.items())) for item in part) for part in parts]
    # Conditions of partial indices are objects that do not show their text.
    return json.loads(re.sub(r"<[\w.]*TextClause object at \w+>", "condition", json.dumps(found)))


def test_migrations_make_what_the_tables_say(database: Database) -> None:
    with database.writing() as connection:
        metadata.create_all(connection)
        declared = schema(connection)
        metadata.drop_all(connection)
    upgrade(database)
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert schema(connection) == declared
    assert set(declared) == set(metadata.tables)


def test_downgrade_leaves_nothing_and_upgrade_comes_back(database: Database) -> None:
    upgrade(database)
    with database.writing() as connection:
        command.downgrade(configuration(connection), "base")
        assert schema(connection) == {}
    upgrade(database)
    with database.reading() as connection:
        assert set(schema(connection)) == set(metadata.tables)


def test_a_database_of_a_newer_version_stays_as_it_is(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A process of the version before that starts again during a rolling upgrade."""
    upgrade(database)
    with database.writing() as connection:
        before = schema(connection)
        connection.execute(text("UPDATE alembic_version SET version_num = 'of_tomorrow'"))
    upgrade(database)
    assert "revision of_tomorrow of a newer version" in caplog.text
    with database.reading() as connection:
        assert schema(connection) == before
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "of_tomorrow"


def test_many_may_open_a_new_database_at_once(empty_database_url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(open_store, [empty_database_url] * 6))
    job_id = add(stores[0], evaluate_spec())
    assert [store.jobs.get(job_id).id for store in stores] == [job_id] * 6
    for store in stores:
        store.close()


def test_a_failed_migration_leaves_nothing(database: Database) -> None:
    with database.writing() as connection:
        # In the way of the last table of the first revision.
        connection.exec_driver_sql("CREATE TABLE workers (worker TEXT)")
    with pytest.raises(Exception, match="workers"):
        upgrade(database)
    with database.reading() as connection:
        assert set(inspect(connection).get_table_names()) == {"workers"}
