from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.exc import OperationalError

from assay.service.store.columns import metadata
from assay.service.store.database import Database
from assay.service.store.store import Store, open_store
from assay.service.store.tables import jobs, shards
from assay.service.store.upgrade import configuration, upgrade
from tests.support.jobs import add, claim, evaluate_spec, outcome, states, succeeded, train_spec
from tests.support.simulation import submit_many


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


def test_an_existing_database_is_opened_with_what_is_in_it(database_url: str) -> None:
    with open_store(database_url) as first:
        job_id = add(first, evaluate_spec())
    with open_store(database_url) as second, open_store(database_url, migrate=False) as third:
        assert second.jobs.get(job_id) == third.jobs.get(job_id)


def test_sqlite_is_set_up_for_several_processes(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'made' / 'assay.sqlite'}")
    with store._database.reading() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "busy_timeout", "foreign_keys", "synchronous")
        }
    assert settings == {"journal_mode": "wal", "busy_timeout": 30000, "foreign_keys": 1, "synchronous": 1}
    store.close()


def test_a_writing_transaction_locks_before_it_reads(tmp_path: Path) -> None:
    file = tmp_path / "assay.sqlite"
    store = open_store(f"sqlite:///{file}")
    other = sqlite3.connect(file, timeout=0)
    with store._database.reading():
        other.execute("BEGIN IMMEDIATE")
        other.rollback()
    with store._database.writing(), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    other.close()
    store.close()


@pytest.mark.parametrize("url", ["mysql://root@127.0.0.1/assay", "postgresql+psycopg2://h/d", "sqlite://"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:////path/to/file"):
        open_store(url)


@pytest.mark.parametrize("url", ["nonsense", "", "postgresql+psycopg://me:secret@host:port/assay"])
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="cannot be parsed, allowed: sqlite") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def _is_a_folder(file: Path) -> None:
    file.mkdir()


def _is_no_database(file: Path) -> None:
    file.write_bytes(b"this is a text, and a long one at that" * 100)


def _is_below_a_file(file: Path) -> None:
    file.parent.rmdir()
    file.parent.write_text("")


def _has_a_folder_for_its_lock(file: Path) -> None:
    Path(f"{file}.lock").mkdir()


SPOILED = [_is_a_folder, _is_no_database, _is_below_a_file, _has_a_folder_for_its_lock]


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_file_that_cannot_be_opened_is_a_database_that_is_away(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    file = tmp_path / "folder" / "assay.sqlite"
    file.parent.mkdir()
    spoil(file)
    with pytest.raises(OperationalError, match=r"assay\.sqlite"):
        open_store(f"sqlite:///{file}")


def test_jobs_and_idempotency_keys_outlive_the_revision_of_keys(database: Database) -> None:
    known = "SELECT key, body_sha256, job_id FROM idempotency_keys ORDER BY job_id"
    upgrade(database)
    with Store(database) as store:
        first = store.jobs.add(evaluate_spec(), body_sha256="a", idempotency_key="k", tenant="one")[0].id
        store.jobs.add(evaluate_spec(), body_sha256="b", idempotency_key="k", tenant="two")
        other = store.jobs.add(evaluate_spec(), body_sha256="c", idempotency_key="l")[0].id
        with database.writing() as connection:
            command.downgrade(configuration(connection), "0001")
            rows = [tuple(row) for row in connection.exec_driver_sql(known)]
            assert rows == [("k", "a", first), ("l", "c", other)]
        upgrade(database)
        assert [
            store.jobs.add(evaluate_spec(), body_sha256=body, idempotency_key=key)[0].id
            for body, key in (("a", "k"), ("c", "l"))
        ] == [first, other]


def test_needed_weights_outlive_the_revision_of_dependencies(database: Database) -> None:
    column = "SELECT id, depends_on FROM jobs WHERE depends_on IS NOT NULL ORDER BY id"
    upgrade(database)
    with Store(database) as store:
        one, other = add(store, train_spec()), add(store, train_spec())
        plain = add(store, evaluate_spec())
        both = add(store, evaluate_spec(weights_from=other, attacks_from=[one]))
        attacking = add(store, evaluate_spec(attacks_from=[one, one]))
        with database.writing() as connection:
            command.downgrade(configuration(connection), "0004")
            assert [tuple(row) for row in connection.execute(text(column))] == [(both, other)]
        upgrade(database)
        succeeded(store, store.jobs.get(one))
        assert states(store, plain, both, attacking) == ["queued", "waiting", "queued"]
        succeeded(store, store.jobs.get(other))
        assert states(store, both) == ["queued"]


def test_older_versions_know_nothing_of_checkpoints(database: Database) -> None:
    upgrade(database)
    with Store(database) as store:
        job_id = add(store, evaluate_spec())
        row = {"model": {"name": "vit", "params": {}}, "sha256": "a", "size": 1, "tenant": None}
        store.checkpoints.add("ours", **row, place=lambda job_id: None)
        with database.writing() as connection:
            command.downgrade(configuration(connection), "0005")
            assert [row.id for row in connection.execute(text("SELECT id FROM jobs"))] == [job_id]
        upgrade(database)
        assert store.checkpoints.page(tenant=None) == ([], None)


def test_shards_of_before_fairness_belong_to_their_jobs_tenants(database_url: str) -> None:
    """One that runs meanwhile was claimed at an unknown time: it costs nothing and ends as ever."""
    with open_store(database_url) as store:
        submit_many(store, "alice", 2)
        submit_many(store, None, 1)
        held = claim(store)
        with store._database.writing() as connection:
            command.downgrade(configuration(connection), "0008")
        upgrade(store._database)
        with store._database.reading() as connection:
            rows = connection.execute(select(shards.c.tenant, shards.c.claimed_at)).all()
            assert sorted(row.tenant for row in rows) == ["", "alice", "alice"]
            assert {row.claimed_at for row in rows} == {None}
        assert store.shards.finish(held, outcome(held)) is not None
        assert len({claim(store).job_id for _ in range(2)}) == 2


def test_jobs_of_earlier_versions_get_their_names_as_a_column(database: Database) -> None:
    upgrade(database)
    store = Store(database)
    names = ["first", "", "\u202e<b>", "x" * 200]
    made = [add(store, evaluate_spec(name=name)) for name in names]
    with database.writing() as connection:
        command.downgrade(configuration(connection), "0012")
    upgrade(database)
    with database.reading() as connection:
        found = dict(connection.execute(select(jobs.c.id, jobs.c.name)).all())
    assert [found[job_id] for job_id in made] == names
