"""The step that makes or changes the tables."""

from __future__ import annotations

import pytest

from assay.service import migrate
from assay.service.store.store import open_store
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.servers import free_port


def test_migrate_makes_the_tables(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATABASE_URL", empty_database_url)
    assert migrate.main() == 0
    assert migrate.main() == 0, "doing it twice does no harm"
    with open_store(empty_database_url, migrate=False) as store:
        assert store.workers.online("cpu") == 0


def test_migrate_waits_for_a_database_and_says_when_none_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    monkeypatch.setenv("ASSAY_DATABASE_URL", f"postgresql+psycopg://me@127.0.0.1:{port}/assay")
    assert migrate.main(wait_seconds=0) == 1
    assert capsys.readouterr().err.startswith("cannot open the database: ")
    monkeypatch.setenv("ASSAY_DATABASE_URL", "mysql://me@db/assay")
    assert migrate.main(wait_seconds=0) == 2
