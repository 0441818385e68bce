"""Opening a store: existing databases, several processes, and what is no database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from assay.service.store.store import open_store
from tests.support.jobs import add, evaluate_spec


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
