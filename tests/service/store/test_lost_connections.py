"""Lost connections are told apart from everything else that goes wrong in the database."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, ProgrammingError

from assay.service.store import database
from assay.service.store.database import Database


def test_a_transaction_that_stood_still_too_long_is_a_database_that_is_away(
    emptied_postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen machine loses its connection: the work is done again, and nothing is wrong with it."""
    monkeypatch.setattr(database, "IDLE_SECONDS", 0.05)
    opened = Database(emptied_postgresql_url)
    with pytest.raises(OperationalError, match="idle-in-transaction"):
        _stand_still(opened)
    with opened.reading() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    opened.close()


def test_a_wrong_statement_is_no_lost_connection(emptied_postgresql_url: str) -> None:
    opened = Database(emptied_postgresql_url)
    with pytest.raises(ProgrammingError), opened.writing() as connection:
        connection.execute(text("SELECT * FROM nothing_of_this_name"))
    opened.close()


def _stand_still(opened: Database) -> None:
    with opened.writing() as connection:
        for _ in range(100):
            connection.execute(text("SELECT 1"))
            time.sleep(0.2)
